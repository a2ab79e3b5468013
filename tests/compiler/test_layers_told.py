"""What is told of memories of layers: equations, approximations, pace, bounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.explain.explanation import approximations, remarks, warned
from mnemic.compiler.explain.layered_words import QUINTIC, band, pace
from mnemic.compiler.explain.render import equation_text
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.rule import Rule
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec

MLP = {"kind": "mlp", "residual": False}


def rule(**entries: Any) -> Rule:
    return derive_spec(Spec.model_validate({"name": "mine", "bias": "l2", **entries}))


def packaged(name: str) -> Rule:
    return derive_spec(load(name))


def told(of: Rule) -> dict[str, list[str]]:
    """The equations' texts by name, in order."""
    found: dict[str, list[str]] = {}
    for equation in equations(of):
        found.setdefault(equation.name, []).append(equation.text)
    return found


# -- M --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "shown"),
    [
        (MLP, "M(W, x) = W1 σ(W2 x),  σ(z) = Φ(z)·z"),
        (
            {"kind": "mlp", "depth": 3, "activation": "tanh", "norm": True},
            "M(W, x) = x + LN(W1 σ(W2 σ(W3 x))),  σ(z) = tanh(z)",
        ),
        ({"kind": "mlp", "activation": "none"}, "M(W, x) = x + W1 W2 x"),
        (
            {"kind": "glu", "activation": "silu", "residual": False},
            "M(W, x) = W1 (σ(W2 x) ∘ (W3 x)),  σ(z) = z/(1 + exp(−z))",
        ),
        ({"kind": "glu", "activation": "x", "residual": False}, "M(W, x) = W1 ((W2 x) ∘ (W3 x))"),
    ],
)
def test_the_network_is_written_as_it_is(memory: dict[str, Any], shown: str) -> None:
    assert told(rule(memory=memory))["network"] == [shown]


def test_a_chain_has_a_line_a_memory_and_a_letter_an_activation() -> None:
    chain = [{"kind": "mlp", "activation": "silu"}, {"kind": "mlp", "activation": "tanh"}]
    lines = told(rule(memory={"chain": chain, "every": [1, 4]}))
    assert lines["network"] == [
        "x1 = x + W1 σ(W2 x)",
        "M(W, x) = x1 + W3 σ₂(W4 x1),  σ(z) = z/(1 + exp(−z)),  σ₂(z) = tanh(z)",
    ]
    assert "e1ₜ = eₜ + W4ₜ₋₁ᵀ δ4ₜ" in lines["chain rule"][0]


def test_the_error_of_a_chain_is_not_taken_for_a_residual() -> None:
    """The slope of the dot product at ŷ is e = −v; that a node is named e says nothing of it."""
    chain = ["linear", {"kind": "mlp", "activation": "tanh"}]
    steps = rule(bias="dot", memory={"chain": chain, "every": [1, 1]}).steps
    lines = [equation_text(s.equation, {}) for s in steps if s.title == "chain rule"]
    assert "∂z1 = e + ∂z1|W3" in lines
    assert not any("ŷ" in line for line in lines)


# -- how matrices move ----------------------------------------------------------------------------


def test_a_rate_outside_stands_outside() -> None:
    lines = told(packaged("atlas"))
    assert lines["momentum"] == ["Sₜ = θₜ Sₜ₋₁ − Gₜ"]
    assert lines["memory"] == ["Wₜ = αₜ Wₜ₋₁ + ηₜ NS5(Sₜ)"]
    assert lines["norms"] == [
        "at t = 16, 32, …: the rows of Wₜ lose their means and go back to the spreads of those "
        "in W₀"
    ]
    assert lines["prediction"] == ["ŷᵢ = M(Wᵣ, kᵢ),  r = 16⌊(t − 1)/16⌋"]


def test_a_rate_inside_stands_inside() -> None:
    muon = {"method": "muon", "rate": "token"}
    assert told(rule(memory=MLP, optimizer=muon))["memory"] == ["Wₜ = Wₜ₋₁ − NS5(ηₜ Gₜ)"]


def test_steps_gather_and_are_used_every_so_often() -> None:
    lines = told(packaged("lact"))
    assert lines["steps"] == ["Sₜ = Sₜ₋₁ − ηₜ Gₜ"]
    assert lines["memory"] == [
        "at t = 64, 128, …: Wₜ = Wₜ₋₁ + NS5(Sₜ), then Sₜ ← 0;  between, Wₜ = Wₜ₋₁"
    ]
    assert lines["read-out"] == ["yₜ = M(Wᵣ, qₜ)"]
    assert lines["layers"][0].endswith("r = 64⌊(t − 1)/64⌋")


def test_momentum_is_not_emptied_and_the_dual_decays_between() -> None:
    held = {"method": "muon", "rate": "token", "momentum": "token", "every": 4}
    lines = told(rule(memory=MLP, optimizer=held, retention={"decay": "token"}))
    assert lines["dual"] == ["Aₜ = αₜ Aₜ₋₁"]
    assert lines["use"] == ["at t = 4, 8, …: Aₜ ← Aₜ + NS5(Sₜ)"]
    assert lines["link"] == ["at t = 4, 8, …: Wₜ = Aₜ;  between, Wₜ = Wₜ₋₁"]


def test_memories_of_a_chain_move_at_their_own_pace() -> None:
    lines = told(packaged("cms"))
    assert lines["memory"] == ["Wₜ = αₜ Wₜ₋₁ − ηₜ Gₜ  (W1, W2)"]
    assert [line.split(":")[0] for line in lines["use"]] == ["at t = 4, 8, …", "at t = 16, 32, …"]
    assert lines["use"][1].endswith("(W5, W6)")


def test_a_retention_that_acts_on_the_memory_acts_at_chunk_ends() -> None:
    elastic = {"global": {"elastic": {"l1": 0.1, "l2": 0.1}}}
    at_ends = told(rule(memory=MLP, retention=elastic, optimizer={"anchor": {"chunk": 8}}))
    assert at_ends["dual"] == ["Aₜ = Aₜ₋₁ − Gₜ"]
    assert at_ends["retention"] == ["at t = 8, 16, …: Aₜ ← Wₜ"]
    always = told(rule(memory=MLP, retention=elastic))
    assert always["dual"] == ["Aₜ = Wₜ₋₁ − Gₜ"]
    assert "retention" not in always


def test_the_gradient_of_a_window_sums_over_pairs() -> None:
    assert told(packaged("omeganet"))["gradient"] == [
        "G1ₜ = Σ_(i=t−3..t) γᵢ δ1ᵢ h2ᵢᵀ,  G2ₜ = Σ_(i=t−3..t) γᵢ δ2ᵢ φ(kᵢ)ᵀ"
    ]


def test_every_matrix_has_its_own_states() -> None:
    assert "Each of the matrices W1 and W2 has G, S and W of its own." in remarks(
        packaged("titans")
    )
    (line,) = (r for r in remarks(packaged("memora")) if r.startswith("Each"))
    assert "the link acts on each by itself" in line
    assert not any(r.startswith("Each") for r in remarks(rule()))


# -- approximations, pace, bounds -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["memora", "dla"])
def test_an_anchor_is_named_where_the_error_alone_is_constant(name: str) -> None:
    assert any(line.startswith("chunk anchor") for line in approximations(packaged(name)))


def test_an_anchor_is_no_approximation_of_a_memory_that_stands_still() -> None:
    assert not any(line.startswith("chunk anchor") for line in approximations(packaged("lact")))
    linear = rule(bias="dot", optimizer={"anchor": {"chunk": 8}})
    assert approximations(linear) == ()
    (line, *_) = approximations(packaged("cms"))
    assert "W1, W2, W3 and W4; the others" in line


@pytest.mark.parametrize("steps", [1, 2, 5, 8])
def test_newton_schulz_takes_singular_values_where_it_is_told(steps: int) -> None:
    """Against the iteration on matrices of known singular values."""
    low, high, least = band(steps)
    torch.manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(64, 64, dtype=torch.float64))[0] for _ in range(2))
    for smallest in (least, 0.3, 0.9):
        sizes = torch.linspace(smallest, 1, 64, dtype=torch.float64)
        x = left @ torch.diag(sizes) @ right
        for _ in range(steps):
            gram = x @ x.mT
            x = QUINTIC[0] * x + (QUINTIC[1] * gram + QUINTIC[2] * gram @ gram) @ x
        found = torch.linalg.svdvals(x)
        assert low - 1e-9 <= found.min()
        assert found.max() <= high + 1e-9


def test_a_deep_memory_without_an_anchor_says_so_once() -> None:
    slow = rule(memory=MLP, optimizer={"rate": "token"})
    told_once = [line for line in warned(slow) if "optimizer.anchor: {chunk: 16}" in line]
    assert len(told_once) == 1
    assert "slow, not wrong" in told_once[0]
    assert "changes the numbers" in told_once[0]
    assert pace(rule(memory=MLP, optimizer={"rate": "token", "anchor": {"chunk": 16}})) is None
    assert pace(rule(optimizer={"rate": "token"})) is None
    before = rule(memory=MLP, retention={"decay": "token", "order": "before"})
    assert "retention.order: after" in str(pace(before))


@pytest.mark.parametrize("name", ["cms", "titans", "lact", "memora", "atlas", "dla"])
def test_no_bound_of_a_linear_memory_is_given_for_a_deep_one(name: str) -> None:
    known = stability(packaged(name))
    assert known.kind == "open"
    assert known.inside is None


def test_o_bounds_a_step_whatever_the_error() -> None:
    assert "at most 1.21·ηₜ in the spectral norm" in stability(packaged("atlas")).sentence
    assert "at most 1.21 in the spectral norm" in stability(packaged("lact")).sentence


def test_steps_as_large_as_the_memory_are_warned_of() -> None:
    assert "rounding grows" in (stability(packaged("lact")).warning or "")
    assert stability(packaged("atlas")).warning is None
    outside = {"rate": {"from": "input", "activation": "sigmoid(x)/8"}, "rate_at": "outside"}
    deep = {"memory": MLP, "optimizer": {"method": "muon", "anchor": {"chunk": 16}, **outside}}
    assert stability(rule(**deep)).warning is None
    assert stability(rule(**{**deep, "optimizer": {**deep["optimizer"], "rate": "token"}})).warning


def test_layers_that_nothing_holds_are_warned_of() -> None:
    free = {"mnemic": 1, "extends": "deep-transformer", "name": "free"}
    unheld = derive_spec(load({**free, "retention": {"normalize": "none"}}))
    assert "fades to nothing" in (stability(unheld).warning or "")
    for name in ("deep-transformer", "swdt", "dot", "dla", "memora", "ttt-mlp", "linear-attention"):
        assert stability(packaged(name)).warning is None
    deep = {"bias": "dot", "optimizer": {"rate": "token"}}
    plain = {"kind": "mlp", "norm": False}
    assert stability(rule(memory=plain, **deep)).warning
    assert stability(rule(memory={**plain, "activation": "tanh"}, **deep)).warning is None
    assert stability(rule(memory={**plain, "norm": True}, **deep)).warning is None


def test_a_bound_counts_every_step_that_is_taken_at_one_memory() -> None:
    held = rule(optimizer={"rate": "token", "every": 8}, retention={"decay": "token"})
    assert "A chunk of 8 tokens contracts along its key while 8·ηₜ·‖φ‖² < 1 + αₜ⁸" in (
        stability(held).sentence
    )
    deep = rule(memory=MLP, optimizer={"rate": "token", "every": 8})
    assert "8·ηₜ·‖∂M/∂W‖² < 2" in stability(deep).sentence
