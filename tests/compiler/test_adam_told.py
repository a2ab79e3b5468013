"""What is told of Adam: equations, state, how far a step can go, and what tells rules apart."""

from typing import Any

import numpy as np
import pytest

from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.explain.layered_words import largest_quotient
from mnemic.compiler.explain.stability import stability
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import load
from mnemic.pipeline import derive, diff

PLAIN = {"mnemic": 1, "name": "by-adam", "bias": "l2"}


def by(**optimizer: Any) -> dict[str, Any]:
    return {**PLAIN, "optimizer": {"method": "adam", "rate": "token", **optimizer}}


def test_equations_in_text_and_latex() -> None:
    found = {e.name: e for e in equations(derive(by(momentum="token", beta2="token")))}
    assert found["momentum"].text == "Sₜ = θₜ Sₜ₋₁ − (1 − θₜ) Gₜ"
    assert found["squares"].text == "sₜ = β₂ₜ sₜ₋₁ + (1 − β₂ₜ) Gₜ ∘ Gₜ"
    assert found["means"].text == ("Ŝₜ = Sₜ/(1 − Π_(i≤t) θᵢ),  ŝₜ = sₜ/(1 − Π_(i≤t) β₂ᵢ)")
    assert found["memory"].text == "Wₜ = Wₜ₋₁ + ηₜ Ŝₜ/(√ŝₜ + 1e−08)"
    assert found["memory"].latex == (
        r"W_t = W_{t-1} + \eta_t \frac{\hat S_t}{\sqrt{\hat s_t} + 10^{-8}}"
    )
    assert r"\prod_{i \le t} \beta_{2,i}" in found["means"].latex


def test_means_that_forget_all_are_not_written() -> None:
    found = {e.name: e.text for e in equations(derive(by(momentum=0, beta2=0, epsilon=0.5)))}
    assert found["memory"] == "Wₜ = Wₜ₋₁ − ηₜ Gₜ/(|Gₜ| + 0.5)"
    assert not {"momentum", "squares", "means"} & found.keys()


@pytest.mark.parametrize(
    ("optimizer", "numbers"),
    [({}, "D*d_v*2 + 1"), ({"momentum": 0.9}, "D*d_v*3 + 2"), ({"beta2": 0}, "D*d_v")],
)
def test_the_state_counts_both_means(optimizer: dict[str, Any], numbers: str) -> None:
    state = cost(derive(by(**optimizer))).state
    d, v = 7, 5
    values = {s: {"D": d, "d_v": v}[s.name] for s in state.free_symbols}
    assert state.subs(values) == {"D*d_v*2 + 1": 71, "D*d_v*3 + 2": 107, "D*d_v": 35}[numbers]


@pytest.mark.parametrize(
    ("theta", "beta"), [(0.9, 0.999), (0.9, 0.95), (0.5, 0.9), (0.9, 0.82), (0.0, 0.99)]
)
def test_the_largest_step(theta: float, beta: float) -> None:
    """The worst gradients for a step at t, found from the weights themselves, over all t."""
    worst = 0.0
    for t in (*range(1, 60), 300, 3000, 30000):
        j = np.arange(min(t, 2000), dtype=float)
        a = (1 - theta) * theta**j / (1 - theta**t)
        b = (1 - beta) * beta**j / (1 - beta**t)
        gradients = a / b
        reached = (a * gradients).sum() / np.sqrt((b * gradients**2).sum())
        worst = max(worst, float(reached))
    assert largest_quotient(theta, beta) == pytest.approx(worst, rel=2e-3)


def test_how_far_a_step_can_go_is_told() -> None:
    assert "at most 7.28·ηₜ, whatever" in stability(derive(by(momentum=0.9))).sentence
    assert "at most ηₜ/√(1 − β₂ₜ)" in stability(derive(by(beta2="token"))).sentence
    assert "Nothing bounds a step" in stability(derive(by(momentum=0.9, beta2=0.5))).sentence


def test_what_tells_two_rules_apart() -> None:
    def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return diff(a, b).verdict.kind == "equal"

    assert same(by(), by(beta2=0.999, epsilon=1e-8, rate_at="outside"))
    assert same(by(momentum=0), by())
    assert not same(by(beta2=0.9), by())
    assert not same(by(epsilon=0.1), by())
    assert not same(by(momentum=0.9), {**PLAIN, "optimizer": {"method": "muon", "rate": "token",
                                                              "momentum": 0.9}})  # fmt: skip


def test_identities_of_other_methods_do_not_hang_on_what_is_adams() -> None:
    """Measurements are kept under a spec's hash."""
    data = load({**PLAIN, "optimizer": "muon"}).optimizer.model_dump()
    assert not {"beta2", "epsilon"} & data.keys()
    assert (
        len({spec_hash(load(by(**told))) for told in ({}, {"beta2": 0.9}, {"epsilon": 0.1})}) == 3
    )
