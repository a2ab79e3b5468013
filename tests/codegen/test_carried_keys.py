"""Kept keys that move: carried by products of (I − η w wᵀ), with everything else of kept pairs."""

from typing import Any

import pytest
import torch
from conformance import (
    Sizes,
    Tensors,
    agree,
    compiled,
    error,
    gradients,
    inputs,
    run,
    weighed,
)
from test_kept_pairs import BANDWIDTH, CG, local
from test_own_expressions import conforms
from torch import Tensor

from mnemic.compiler.compare.diff import diff
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.samples import draw
from mnemic.compiler.oracle.stated import stated
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec

RATE = {"from": "input", "activation": "2*sigmoid(x)"}
FORMS = ("recurrent", "chunk")


def carrying(similarity: str = "exp(s)", degree: int = 0, **more: Any) -> dict[str, Any]:
    optimizer = {"method": "nonparametric", "rate": RATE}
    return local(similarity, degree, **{"optimizer": optimizer, "keys": {"carry": "own"}, **more})


def path(x: Tensors) -> Tensor:
    """softmax_i(q_tᵀ Π_{j=i+1..t} (I − β_j w_j w_jᵀ) k_i / √d) v_i, one product at a time."""
    q, k, v, w, beta = (x[n] for n in ("q", "k", "v", "carry", "eta"))
    log_alpha = x.get("log_alpha", torch.zeros_like(beta))
    groups, eye = q.shape[2] // k.shape[2], torch.eye(k.shape[-1], dtype=k.dtype)
    rows = []
    for t in range(q.shape[1]):
        product = eye.expand(*k.shape[:1], k.shape[2], *eye.shape)
        aged = torch.zeros_like(beta[:, 0])
        logits = []
        for i in reversed(range(t + 1)):
            moved = (product @ k[:, i, :, :, None])[..., 0].repeat_interleave(groups, 1)
            logit = (q[:, t] * moved).sum(-1) / k.shape[-1] ** 0.5
            logits.append(logit + aged.repeat_interleave(groups, 1))
            outer = w[:, i, :, :, None] * w[:, i, :, None, :]
            product = product @ (eye - beta[:, i, :, None, None] * outer)
            aged = aged + log_alpha[:, i]
        weights = torch.softmax(torch.stack(logits[::-1], -1), -1)
        values = v[:, : t + 1].repeat_interleave(groups, 2)
        rows.append(torch.einsum("bhi,bihv->bhv", weights, values))
    return torch.stack(rows, 1)


def against(case: Any, arguments: Tensors, form: str, tolerance: float = 1e-10) -> None:
    leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    expected = path(leaves)
    leaves_ = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    found = case.operator(**leaves_, form=form)[0]
    assert error(found, expected) <= tolerance
    wanted = gradients(weighed(expected), leaves)
    for name, x in gradients(weighed(found), leaves_).items():
        assert error(x, wanted[name]) <= 10 * tolerance, name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("gated", [False, True])
def test_path_attention_is_the_product_of_householder_steps(
    form: str, groups: int, gated: bool
) -> None:
    more = {"retention": {"decay": "token"}} if gated else {}
    case = compiled(carrying(**more))
    arguments = inputs(case, 23, sizes=Sizes(groups=groups))
    arguments["eta"] = 2 * torch.rand_like(arguments["eta"])
    against(case, arguments, form)


@pytest.mark.full
def test_many_blocks_are_the_product_of_householder_steps() -> None:
    case = compiled("path")
    arguments = inputs(case, 130, sizes=Sizes(1, heads=1, key=3, value=2))
    arguments["eta"] = 2 * torch.rand_like(arguments["eta"])
    against(case, arguments, "chunk")


SIMILARITIES = ["exp(s)", "exp(-d2)", "exp(a*s - d2/2)", "1/(1 + a*d2)", "relu(s + 1)"]


@pytest.mark.some(6)
@pytest.mark.parametrize("setting", ["plain", "decay", "window", "both"])
@pytest.mark.parametrize("degree", [0, 1, "cg"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_keys_move_under_every_similarity(similarity: str, degree: int | str, setting: str) -> None:
    more: dict[str, Any] = {}
    if "a*" in similarity:
        more["coefficients"] = {"a": BANDWIDTH}
    if setting in ("decay", "both"):
        more["retention"] = {"decay": "token"}
    if setting in ("window", "both"):
        more["window"] = 4
    if degree == "cg":
        more["optimizer"] = {**CG, "rate": RATE}
    conforms(carrying(similarity, 1 if degree == "cg" else int(degree), **more))


@pytest.mark.some(5)
@pytest.mark.parametrize("rate", [1.0, "token", {"expr": "2**(-1 - h)"}])
@pytest.mark.parametrize("carry", ["own", {"expr": "k"}, {"expr": "b*k"}])
@pytest.mark.parametrize("window", ["all", 5])
def test_directions_and_rates_of_every_kind(rate: Any, carry: Any, window: Any) -> None:
    more = {"coefficients": {"b": "channel"}} if carry == {"expr": "b*k"} else {}
    optimizer = {"method": "nonparametric", "rate": rate}
    conforms(carrying(keys={"carry": carry}, optimizer=optimizer, window=window, **more))


def test_features_before_the_step() -> None:
    for features in ("elu", {"kind": "polynomial", "degree": 2}):
        conforms(carrying(features=features))


@pytest.mark.some(2)
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("window", ["all", 20, 70])
@pytest.mark.parametrize("similarity", ["exp(s)", "exp(-d2)"])
def test_blocks_of_rows_and_pieces(similarity: str, window: Any, degree: int) -> None:
    """More rows than a block holds, behind keys that a state has kept."""
    case = compiled(carrying(similarity, degree, window=window, retention={"decay": "token"}))
    arguments = inputs(case, 210, sizes=Sizes(1, heads=1, key=3, value=2))
    expected = run(case, arguments, "recurrent")
    agree(run(case, arguments, "chunk"), expected)
    agree(run(case, arguments, (("chunk", 67), ("chunk", 143))), expected)
    agree(run(case, arguments, (("recurrent", 9), ("chunk", 201))), expected)


@pytest.mark.some(2)
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("similarity", ["exp(s)", "exp(-d2/2)"])
@pytest.mark.parametrize("window", ["all", 3])
def test_the_stated_problem(similarity: str, window: Any, degree: int) -> None:
    rule = derive_spec(load(carrying(similarity, degree, window=window)))
    sample = draw(rule)
    expected = stated(rule.problem, sample.q, sample.k, sample.v, sample.coefficients)
    found, _ = interpret(rule, sample.q, sample.k, sample.v, sample.coefficients)
    assert error(found, expected) <= 1e-8


# -- laws ------------------------------------------------------------------------------------


def test_without_a_rate_keys_stand_still() -> None:
    case, plain = compiled("path"), compiled("softmax-attention")
    x = inputs(case, 29)
    x["eta"] = torch.zeros_like(x["eta"])
    for form in FORMS:
        expected = plain.operator(x["q"], x["k"], x["v"])[0]
        assert error(case.operator(**x, form=form)[0], expected) <= 1e-12


def test_reflections_keep_lengths() -> None:
    """At η = 2 a unit carry reflects: after thousands of steps keys are as long as they were."""
    case = compiled("path")
    x = inputs(case, 3000, sizes=Sizes(1, heads=1, key=4, value=2), dtype=torch.float32)
    x["eta"] = torch.full_like(x["eta"], 2.0)
    with torch.no_grad():
        state = case.operator(**x, output_final_state=True)[1]
    lengths = torch.linalg.vector_norm(state["keys"][0, 0], dim=-1)
    assert error(lengths, torch.linalg.vector_norm(x["k"][0, :, 0], dim=-1)) <= 1e-4


def test_projections_leave_nothing_along_the_last_carry() -> None:
    case = compiled(carrying(optimizer={"method": "nonparametric"}))
    x = inputs(case, 90)
    for form in FORMS:
        state = case.operator(**x, form=form, output_final_state=True)[1]
        along = torch.einsum("bhnk,bhk->bhn", state["keys"], x["carry"][:, -1])
        assert along[..., :-1].abs().max() <= 1e-12


def test_masked_tokens_move_nothing() -> None:
    case = compiled("path")
    x = inputs(case, 13)
    mask = torch.ones(2, 13, dtype=torch.bool)
    mask[0, 4:9] = False
    _, state = case.operator(**x, mask=mask, output_final_state=True)
    kept = {n: y[:1, mask[0]] for n, y in x.items()}
    _, expected = case.operator(**kept, output_final_state=True)
    assert error(state["keys"][:1, :, :8], expected["keys"]) <= 1e-12


def test_the_layer_carries_by_unit_vectors() -> None:
    import mnemic

    layer = mnemic.compile("path").layer(16, heads=2)
    x = torch.randn(2, 5, 16)
    vectors, _ = layer.vectors(x, {}, None)
    lengths = torch.linalg.vector_norm(vectors["carry"], dim=-1)
    assert error(lengths, torch.ones_like(lengths)) <= 1e-6
    assert float(torch.linalg.vector_norm(vectors["k"], dim=-1).detach().std()) > 1e-2


# -- what is said, and refused ---------------------------------------------------------------


def test_a_carry_is_a_special_case_of_standing_still() -> None:
    found = diff(derive_spec(load("path")), derive_spec(load("softmax-attention")))
    assert "η = 0" in str(found)


@pytest.mark.parametrize(
    ("rate", "inside"), [("2*sigmoid(x)", True), ("softplus", False), ("sigmoid", True)]
)
def test_the_bound_of_a_step(rate: str, inside: bool) -> None:
    optimizer = {"method": "nonparametric", "rate": {"from": "input", "activation": rate}}
    rule = derive_spec(load(carrying(optimizer=optimizer)))
    assert stability(rule).inside is inside
    assert "ηₜ·‖c‖² ≤ 2" in stability(rule).sentence
    assert bool(stability(rule).warning) is not inside


KERNEL = {"name": "kernel", "bias": "l2", "features": "exponential"}
INTERPOLATED = {
    "name": "kernel", "bias": "l2", "window": "all",
    "memory": {"kind": "interpolation", "kernel": "exp(s)", "ridge": 0.1},
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "dense": (
        {"name": "dense", "bias": "l2", "keys": {"carry": "own"}},
        "keys.carry: a carry moves kept keys, and this memory keeps none",
    ),
    "kernel": (
        {**KERNEL, "keys": {"carry": "own"}},
        "keys.carry: a carry moves keys that are compared with queries alone, and a step behind a "
        "kernel compares them with one another",
    ),
    "interpolation": (
        {**INTERPOLATED, "keys": {"carry": "own"}},
        "keys.carry: an interpolation factors the kernel matrix of its keys, which would have to",
    ),
    "exact": (
        carrying(optimizer="exact"),
        "a carry is a step of its own, whose rate an exact solver has as a weight",
    ),
    "normalized": (
        carrying(optimizer={"method": "nonparametric", "rate": {"normalized": True}}),
        "a normalised rate bounds the step of a loss on values, and a carry moves keys",
    ),
    "rate alone": (
        carrying(keys={}),
        "the method 'nonparametric' has no use for 'rate'",
    ),
    "values": (
        carrying(keys={"carry": "v"}),
        "keys.carry",
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_a_carry_without_a_meaning_is_refused(which: str) -> None:
    spec, words = REFUSED[which]
    with pytest.raises(InvalidSpec) as refusal:
        derive_spec(load(spec))
    assert words in str(refusal.value)
