"""The sign of ℓ″ in what is told of stability, against steps that are taken."""

from typing import Any

import pytest
import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.climbing import CONVEX, signs
from mnemic.compiler.explain.explanation import warned
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.rule import Rule
from mnemic.dsl.load import load

NORMALISED = {"rate": {"from": "input", "normalized": True}}


def rule(loss: str, optimizer: Any = None, **more: Any) -> Rule:
    entries = {"optimizer": optimizer or {"rate": "token"}, **more}
    return derive_spec(load({"name": "mine", "bias": {"expr": loss}, **entries}))


def left(loss: str, start: float, rate: float = 0.05, steps: int = 20) -> float:
    """|ŷ − v| after gradient steps on the loss along one unit key."""
    slope = sp.lambdify(sym.e, sp.diff(sp.sympify(loss, {"e": sym.e}), sym.e))
    for _ in range(steps):
        start -= rate * float(slope(start))
    return abs(start)


CLIMBING = ("-e**2", "-log(cosh(e))", "exp(-e**2/2)", "1/(1+e**2)")


@pytest.mark.some(3)
@pytest.mark.parametrize("loss", CLIMBING)
@pytest.mark.parametrize("optimizer", [None, NORMALISED])
def test_a_loss_that_falls_from_its_value_climbs(loss: str, optimizer: Any) -> None:
    assert all(left(loss, start) > abs(start) for start in (-1.5, -0.1, 0.1, 1.5))
    found = stability(rule(loss, optimizer))
    assert (found.kind, found.place, found.bound) == ("climbing", "outside", None)
    assert "every step drives the prediction from its value" in found.sentence
    assert found.warning in warned(rule(loss, optimizer))


@pytest.mark.parametrize("loss", ["cos(e)", "e**4/4 - e**2/2"])
def test_a_loss_that_falls_near_its_value_tells_where(loss: str) -> None:
    assert left(loss, 0.1) > 0.1
    found = stability(rule(loss))
    assert found.kind == "climbing"
    assert "steps near ŷ − v = −0.001 drive" in found.sentence


def test_a_loss_without_an_end_far_out() -> None:
    """1/e falls for ever on the right: large errors do not shrink there."""
    assert left("1/e", 3.0) > 3
    found = stability(rule("1/e"))
    assert found.kind == "climbing"
    assert "shrink" not in found.sentence


@pytest.mark.some(2)
@pytest.mark.parametrize("loss", ["1-exp(-e**2/2)", "1-exp(-n**2/2)", "log(1+e**2)"])
def test_a_loss_that_is_not_convex_but_rises_keeps_its_bound(loss: str) -> None:
    """Its steps go to the value; what they do not do is draw two memories together far out."""
    found = signs(rule(loss))
    assert not found.climbs
    assert found.lowest < -0.2
    told = stability(rule(loss))
    assert told.kind == "bounded"
    assert "That is where ℓ″ > 0; it falls to −0." in told.sentence
    assert stability(rule(loss, NORMALISED)).kind == "open"


@pytest.mark.parametrize("loss", ["e**2/2 + e/10", "log(cosh(e))", "abs(e)", "softplus(-e)", "n"])
def test_a_convex_loss_is_told_as_before(loss: str) -> None:
    assert signs(rule(loss)) == CONVEX
    assert "ℓ″ > 0" not in stability(rule(loss)).sentence


def test_a_concave_loss_of_predictions_never_contracts() -> None:
    assert "concave in ŷ" in stability(rule("v*y - y**2")).sentence
    assert stability(rule("y**2 - v*y")).kind == "bounded"


def test_a_coefficient_that_may_be_negative_turns_the_loss() -> None:
    signed = {"coefficients": {"c": {"from": "input", "activation": "tanh"}}}
    assert stability(rule("c*e**2", **signed)).kind == "climbing"
    assert stability(rule("c*e**2", coefficients={"c": "token"})).kind == "bounded"
