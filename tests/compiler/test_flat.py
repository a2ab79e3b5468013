"""Steps without a slope: what learns nothing is told, and two signs are told apart."""

from dataclasses import replace
from typing import Any

import sympy as sp

from mnemic.compiler.compare.canonical import canonical, same
from mnemic.compiler.explain import flat
from mnemic.compiler.running import GRADIENT
from mnemic.pipeline import derive

ADAM = {"method": "adam", "rate": "token", "momentum": 0.9, "beta2": "token"}


def stepping(step: Any) -> Any:
    """Adam's rule with another step in place of its own."""
    rule = derive({"name": "one", "bias": "l2", "optimizer": ADAM})
    return replace(rule, applied=replace(rule.applied, step=step))


def test_what_learns_nothing_under_a_sign() -> None:
    assert flat.warning(stepping(GRADIENT / (1 + sp.Abs(GRADIENT)))) is None
    told = flat.warning(stepping(sp.sign(GRADIENT)))
    assert told is not None
    assert "no gradient reaches k, v, β₂ₜ, and" in told


def test_signs_of_two_sums_are_two_steps() -> None:
    """Their values agree nearly everywhere, so random numbers seldom tell them apart."""
    mean = sp.Symbol("S", real=True)
    one, other = (stepping(sp.sign(x * mean + GRADIENT / 10)) for x in (0.9, 0.8))
    assert not same(canonical(one), canonical(other))
    assert same(canonical(one), canonical(one))
