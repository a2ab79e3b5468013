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

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.samples import draw
from mnemic.compiler.oracle.stated import stated
from mnemic.dsl.load import load

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


def test_many_blocks_are_the_product_of_householder_steps() -> None:
    case = compiled("path")
    arguments = inputs(case, 150, sizes=Sizes(1, heads=1, key=3, value=2))
    arguments["eta"] = 2 * torch.rand_like(arguments["eta"])
    against(case, arguments, "chunk")


SIMILARITIES = ["exp(s)", "exp(-d2)", "exp(a*s - d2/2)", "1/(1 + a*d2)", "relu(s + 1)"]


@pytest.mark.parametrize("setting", ["plain", "decay", "window", "both"])
@pytest.mark.parametrize("degree", [0, 1, "cg"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_keys_move_under_every_similarity(
    similarity: str, degree: int | str, setting: str
) -> None:
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


@pytest.mark.parametrize("rate", [1.0, "token", {"expr": "2**(-1 - h)"}, {"normalized": True}])
@pytest.mark.parametrize("carry", ["own", {"expr": "k"}, {"expr": "b*k"}])
@pytest.mark.parametrize("window", ["all", 5])
def test_directions_and_rates_of_every_kind(rate: Any, carry: Any, window: Any) -> None:
    more = {"coefficients": {"b": "channel"}} if carry == {"expr": "b*k"} else {}
    optimizer = {"method": "nonparametric", "rate": rate}
    conforms(carrying(keys={"carry": carry}, optimizer=optimizer, window=window, **more))


def test_features_before_the_step() -> None:
    for features in ("elu", {"kind": "polynomial", "degree": 2}):
        conforms(carrying(features=features))


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


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("similarity", ["exp(s)", "exp(-d2/2)"])
@pytest.mark.parametrize("window", ["all", 3])
def test_the_stated_problem(similarity: str, window: Any, degree: int) -> None:
    rule = derive_spec(load(carrying(similarity, degree, window=window)))
    sample = draw(rule)
    expected = stated(rule.problem, sample.q, sample.k, sample.v, sample.coefficients)
    found, _ = interpret(rule, sample.q, sample.k, sample.v, sample.coefficients)
    assert error(found, expected) <= 1e-8
