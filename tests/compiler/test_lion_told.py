"""What is told of Lion: equations, state, how far a step goes, what learns nothing, and diffs."""

from typing import Any

import pytest

from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.explain.explanation import warned
from mnemic.compiler.explain.stability import stability
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec
from mnemic.pipeline import derive, diff

PLAIN = {"mnemic": 1, "name": "by-lion", "bias": "l2"}


def by(**optimizer: Any) -> dict[str, Any]:
    return {**PLAIN, "optimizer": {"method": "lion", "rate": "token", **optimizer}}


def test_equations_in_text_and_latex() -> None:
    found = {e.name: e for e in equations(derive(by(momentum="token", beta2="token")))}
    assert found["momentum"].text == "Sₜ = β₂ₜ Sₜ₋₁ − (1 − β₂ₜ) Gₜ"
    assert found["memory"].text == "Wₜ = Wₜ₋₁ + ηₜ sign(θₜ·Sₜ₋₁ − Gₜ·(1 − θₜ))"
    assert "sign" in found["memory"].latex
    assert "S_{t-1}" in found["memory"].latex
    assert "means" not in found


def test_without_momentum_it_is_the_sign_of_the_gradient() -> None:
    rule = derive(by())
    found = {e.name: e.text for e in equations(rule)}
    assert found["memory"] == "Wₜ = Wₜ₋₁ − ηₜ sign(Gₜ)"
    assert "momentum" not in found
    assert str(cost(rule).state) == "D*d_v"
    assert str(cost(derive(by(momentum=0.9))).state) == "2*D*d_v"


def test_how_far_a_step_goes_is_told() -> None:
    assert "at most ηₜ, whatever" in stability(derive(by(momentum=0.9))).sentence


def test_what_learns_nothing_is_told() -> None:
    loss = {"bias": {"kind": "huber", "delta": "token"}, "retention": {"decay": "token"}}
    spec = {**by(momentum="token", beta2="token"), **loss}
    (line,) = [w for w in warned(derive(spec)) if "flat" in w]
    assert "no gradient reaches k, v, θₜ, β₂ₜ, δₜ, and" in line
    adam = {**PLAIN, "optimizer": {"method": "adam", "rate": "token", "momentum": 0.9}}
    assert not any("flat" in w for w in warned(derive(adam)))


def test_what_tells_two_rules_apart() -> None:
    def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return diff(a, b).verdict.kind == "equal"

    assert same(by(momentum=0.9, beta2=0.8), by(momentum=0.9, beta2=0.8, rate_at="outside"))
    assert same(by(momentum=0), by())
    assert same(by(beta2=0.5), by(beta2=0.9))  # an average that the step does not read
    assert not same(by(momentum=0.9, beta2=0.5), by(momentum=0.9, beta2=0.9))
    assert not same(by(momentum=0.9), by(momentum=0.8))
    adam = {**PLAIN, "optimizer": {"method": "adam", "rate": "token", "momentum": 0.9}}
    assert not same(by(momentum=0.9), adam)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"epsilon": 0.1}, "the method 'lion' has no use for 'epsilon'"),
        ({"rate_at": "inside"}, "takes the sign of a gradient, which a rate inside would cancel"),
        ({"every": 4}, "Lion takes the gradient of every token by itself"),
    ],
)
def test_what_is_refused(option: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSpec, match=told):
        load(by(**option))


def test_its_identity_holds_what_is_its_own() -> None:
    data = load(by()).optimizer.model_dump()
    assert "beta2" in data
    assert "epsilon" not in data
    assert spec_hash(load(by(beta2=0.9))) != spec_hash(load(by()))
