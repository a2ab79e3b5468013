"""Levels of a Fenwick tree: by their definition, by fla's naive reference, in every form."""

import warnings
from typing import Any

import pytest
import torch
from conformance import (
    Case,
    Sizes,
    Tensors,
    agree,
    as_interpreted,
    close,
    compiled,
    error,
    gradients,
    inputs,
    interpreted,
    run,
    start,
    weighed,
)
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from mnemic import pipeline
from mnemic.codegen import package
from mnemic.codegen.support.levels import aligned_pieces, level_mask
from mnemic.compiler.explain.cost import cost
from mnemic.compiler.rule import Linear
from mnemic.dsl.load import load
from mnemic.dsl.writing import short
from mnemic.errors import InvalidSpec
from mnemic.kernels.jobs import Subject

PACKAGED = ("log-linear", "log-linear-gated-deltanet")
WEIGHED: dict[str, Any] = {"levels": {"from": "input", "activation": "softplus"}, "max_levels": 7}
LINEAR = (
    "comba", "deltanet", "dfw", "efla", "gateloop", "gdn2", "hgrn2", "kda", "leaky-lms",
    "longhorn", "nlms", "polysketchformer", "retnet", "rwkv7-full",
)  # fmt: skip
"""Rules with a decay by channel or by row, a phase, keys and values of their own, κ in the step."""


def weighing(name: str, **readout: Any) -> dict[str, Any]:
    """A packaged spec whose read-out weighs levels."""
    spec = short(load(name))
    return {**spec, "name": "x", "published": [], "readout": {**WEIGHED, **readout}}


def by_definition(x: Tensors, *, erases: bool) -> Tensor:
    """y_t = Σ_s λ_t^(level of s) share_s q_t, every token's share of the memory kept apart."""
    decay = torch.exp(-x["eta"] * x["a"]) if "a" in x else x["log_alpha"].exp()
    shares, outs = list[Tensor](), []
    for t in range(x["q"].shape[1]):
        k, v, rate = x["k"][:, t], x["v"][:, t], x["eta"][:, t, :, None, None]
        shares = [decay[:, t, :, None, None] * w for w in shares]
        if erases:
            eraser = rate * k[..., :, None] * k[..., None, :]
            shares = [w - w @ eraser for w in shares]
        shares.append(rate * v[..., :, None] * k[..., None, :])
        reads = [(w @ x["q"][:, t, :, :, None])[..., 0] for w in shares]
        weights = [x["levels"][:, t, :, (s ^ t).bit_length(), None] for s in range(t + 1)]
        outs.append(torch.stack([a * y for a, y in zip(weights, reads, strict=True)]).sum(0))
    return torch.stack(outs, 1)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("name", PACKAGED)
def test_a_form_is_the_definition(name: str, form: str) -> None:
    case = compiled(name)
    x = {n: v.requires_grad_() for n, v in inputs(case, 37, seed=2).items()}
    expected = by_definition(x, erases=name != "log-linear")
    found, _ = case.operator(**x, form=form, chunk_size=8)
    assert error(found, expected) <= 1e-12
    close(gradients(weighed(found), x), gradients(weighed(expected), x), 1e-11)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_the_additive_form_is_flas_naive_reference(form: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fla.ops.log_linear_attn.naive import naive_log_linear_attn
    case = compiled("log-linear")
    x = inputs(case, 29)
    values, gates = x["v"] * x["eta"][..., None], -x["eta"] * x["a"]
    expected = naive_log_linear_attn(x["q"], x["k"], values, gates, x["levels"])
    assert error(case.operator(**x, form=form)[0], expected) <= 1e-12


@pytest.mark.some(3)
@pytest.mark.parametrize("name", LINEAR)
def test_every_linear_rule_takes_levels(name: str) -> None:
    case = compiled(weighing(name))
    x = inputs(case, 21)
    whole = run(case, x, "recurrent")
    out, state = interpreted(case, x)
    assert error(whole.out, out) <= 1e-10
    states = as_interpreted(whole.states)
    close(states, {n: state[n] for n in states})
    if "chunk" in case.forms:
        agree(run(case, x, "chunk", chunk_size=8), whole)
        agree(run(case, x, (("chunk", 3), ("recurrent", 7), ("chunk", 11))), whole)


OWN: dict[str, dict[str, Any]] = {
    "e**2/2 + y**2/20": {},
    "y**2/8 - y*v - y/2": {"retention": {"decay": "channel", "order": "before"}},
    "3*e**2": {"retention": {"global": {"l2": 0.3}}},
    "-y*v": {"features": {"expr": "relu(x)**2"}, "retention": {"decay": "token"}},
}


@pytest.mark.parametrize("loss", OWN)
def test_losses_of_a_users_own(loss: str) -> None:
    case = compiled(
        {"name": "x", "bias": {"expr": loss}, "optimizer": {"rate": "token"}, "readout": WEIGHED}
        | OWN[loss]
    )
    x = inputs(case, 13)
    whole = run(case, x, "recurrent")
    assert error(whole.out, interpreted(case, x)[0]) <= 1e-10
    agree(run(case, x, "chunk", chunk_size=4), whole)


# -- weights ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "plain"), [("log-linear", "mamba2"), ("log-linear-gated-deltanet", "gated-deltanet")]
)
def test_weights_of_one_read_the_whole_memory(name: str, plain: str) -> None:
    case, base = compiled(name), compiled(plain)
    x = inputs(case, 29)
    same = {n: v for n, v in x.items() if n != "levels"}
    found = case.operator(**same, levels=torch.ones_like(x["levels"]), output_final_state=True)
    expected = base.operator(**same, output_final_state=True)
    assert error(found[0], expected[0]) <= 1e-13
    assert error(found[1]["W"].sum(2), expected[1]["W"]) <= 1e-13


def test_a_number_weighs_every_level_alike_and_one_is_no_tree() -> None:
    double, plain = compiled(weighing("gated-deltanet", levels=2)), compiled("gated-deltanet")
    x = inputs(plain, 19)
    assert "levels" not in double.operator.coefficients
    for form in ("recurrent", "chunk"):
        assert error(double.operator(**x, form=form)[0], 2 * plain.operator(**x)[0]) <= 1e-13
    one = compiled(weighing("gated-deltanet", levels=1))
    assert isinstance(one.rule, Linear)
    assert one.signature.states == plain.signature.states


def test_learned_weights_are_a_parameter_a_level() -> None:
    case = compiled(weighing("gla", levels="learned"))
    (found,) = [c for c in case.signature.coefficients if c.name == "levels"]
    assert str(found).startswith("levels [B, T, H, L]")
    agree(
        run(case, inputs(case, 11), "chunk", chunk_size=4), run(case, inputs(case, 11), "recurrent")
    )


# -- the tree --------------------------------------------------------------------------------


def test_a_level_is_the_highest_digit_that_differs() -> None:
    weights = torch.arange(5.0).expand(16, 5)
    expected = torch.tensor([[float((s ^ t).bit_length()) for s in range(16)] for t in range(16)])
    assert torch.equal(level_mask(weights), expected)


@pytest.mark.parametrize("position", [0, 1, 13, 64, 100])
@pytest.mark.parametrize("tokens", [1, 7, 64, 200])
def test_pieces_are_aligned_and_cover_every_token_once(position: int, tokens: int) -> None:
    at = 0
    for first, size, count in aligned_pieces(position, tokens, 33, 2):
        assert first == at
        assert size & (size - 1) == 0
        assert (position + first) % size == 0
        assert size <= 32
        at += size * count
    assert at == tokens


def filled(case: Case, tokens: int) -> list[int]:
    """The levels whose memory is not zero after so many tokens."""
    _, state = case.operator(**inputs(case, tokens), output_final_state=True)
    assert int(state["position"][0]) == tokens
    sizes = state["W"].abs().amax((0, 1, 3, 4))
    return [i for i, size in enumerate(sizes.tolist()) if size > 0]


@pytest.mark.parametrize("tokens", [1, 6, 16, 21, 31])
def test_the_state_holds_a_memory_for_each_digit(tokens: int) -> None:
    digits = [i for i in range(20) if tokens >> i & 1]
    assert filled(compiled("log-linear-gated-deltanet"), tokens) == digits


@pytest.mark.parametrize("name", PACKAGED)
def test_flops_grow_with_the_logarithm_of_the_length(name: str) -> None:
    case, size = compiled(name), 32
    for tokens in (256, 1024):
        x = inputs(case, tokens, sizes=Sizes(1, tokens, 1, size, size))
        with FlopCounterMode(display=False) as counter:
            case.operator(**x, form="chunk")
        told = cost(case.rule).evaluate(d_k=size, d_v=size, T=tokens, b=case.signature.chunk)
        assert counter.get_total_flops() / tokens == pytest.approx(told["train_flops"], rel=0.05)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_more_tokens_than_the_tree_holds_are_refused(form: str) -> None:
    case = compiled(weighing("gated-deltanet", max_levels=4))
    x = inputs(case, 8)
    out, state = case.operator(**x, form=form, output_final_state=True)
    assert out.isfinite().all()
    one = {n: v[:, :1] for n, v in x.items()}
    words = r"4 levels hold 8 tokens of a document, read 9; write readout: \{max_levels: 5\}"
    with pytest.raises(ValueError, match=words):
        case.operator(**one, form=form, initial_state=state)


@pytest.mark.some(1)
@pytest.mark.parametrize("levels", [2, pytest.param(3, marks=pytest.mark.full), 6])
def test_the_checks_of_a_folder_respect_what_the_tree_holds(levels: int) -> None:
    """Its own test, and what verifying tries: no length is more than the levels hold."""
    spec = weighing("gated-deltanet", max_levels=levels)
    module = package.load(pipeline.compile(spec).folder)
    selftest, cases, verify = (
        package.support(module, name) for name in ("selftest", "cases", "verify")
    )
    found = list(selftest.checks(module.Layer))
    assert [check.what for check in found if not check.passed] == []
    wanted = cases.plan(module.rule, torch.device("cpu"))
    tried = [case.arguments["q"].shape[1] for case in cases.cases(module.Layer, wanted)]
    assert min(tried) >= 1
    assert max(tried) == 1 << (levels - 1)
    assert verify.run(module.Layer, device="cpu", keep=False)["passed"]
    subject = Subject.of(module, 8, torch.float32, heads=1)
    assert subject.arguments["q"].shape[1] == 1 << (levels - 1)


def test_a_hybrid_s_persistent_tokens_are_the_tree_s_too() -> None:
    beside = {"hybrid": "layer", "persistent": 3, "attention_window": 4}
    spec = {**weighing("gated-deltanet", max_levels=5), "block": beside}
    module = package.load(pipeline.compile(spec).folder)
    layer = module.Layer(8, heads=2, key_dim=4, value_dim=4).requires_grad_(False)
    assert layer.at_most(100) == 13
    assert layer.at_most(9) == 9
    layer(torch.randn(1, 13, 8))
    with pytest.raises(ValueError, match="5 levels hold 16 tokens of a document, read 17"):
        layer(torch.randn(1, 14, 8))


@pytest.mark.parametrize("name", PACKAGED)
def test_rows_at_other_positions_go_on_by_themselves(name: str) -> None:
    case = compiled(name)
    x = inputs(case, 21, seed=8)
    mask = torch.ones(2, 21, dtype=torch.bool)
    mask[1, 3:9] = False
    _, state = case.operator(**x, mask=mask, output_final_state=True)
    more = inputs(case, 6, seed=9)
    out, _ = case.operator(**more, initial_state=state)
    for row in range(2):
        live = {n: torch.cat([v[row : row + 1, mask[row]], more[n][row : row + 1]], 1)
                for n, v in x.items()}  # fmt: skip
        alone, _ = case.operator(**live, form="recurrent")
        assert error(out[row : row + 1], alone[:, -6:]) <= 1e-12


def test_grouped_queries_share_a_tree() -> None:
    case = compiled("log-linear-gated-deltanet")
    x = inputs(case, 19, sizes=Sizes(groups=3))
    expected, _ = interpreted(case, x)
    state = start(case, x)
    for form in case.forms:
        assert error(case.operator(**x, form=form)[0], expected) <= 1e-12
    agree(run(case, x, "chunk", state=state), run(case, x, "recurrent", state=state))


# -- what is no sum of writes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("huber-norm", "is not affine in ŷ: what a token writes depends on all"),
        ("kl-simplex", "the link is not the identity, so the links of shares do not add up"),
        ("f-divergence-chi2", "the f-divergence multiplies the memory"),
        ("rls", "an exact minimiser is solved anew from all pairs"),
        ("titans", "a deep memory is no sum of what its tokens wrote"),
        ("ttt-linear", "a deep memory is no sum of what its tokens wrote"),
        ("titans-linear", "beside a window, momentum, an anchor, several steps"),
        ("deltaproduct", "beside a window, momentum, an anchor, several steps"),
        ("omega-linear", "beside a window, momentum, an anchor, several steps"),
        ("griffin", "or a diagonal memory is derived but not compiled yet"),
    ],
)
def test_other_rules_are_refused_with_the_reason(name: str, words: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        compiled(weighing(name))
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("readout", "words"),
    [
        ({"normalizer": "sum"}, "a normaliser covers one memory"),
        ({"memory": "before"}, "the newest level is the token's own write"),
        ({"levels": {"from": "input", "per": "key"}}, "cannot have one value per key"),
        ({"bonus": "levels"}, "levels has one number for each level"),
    ],
)
def test_read_outs_that_levels_leave_no_room_for(readout: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        compiled(weighing("gated-deltanet", **readout))
    assert words in str(refusal.value)


def test_a_number_of_levels_without_levels_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="there are no levels to count"):
        compiled({"name": "x", "readout": {"max_levels": 9}})
