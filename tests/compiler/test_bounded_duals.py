"""Retentions whose dual has a bounded range: refused with the range, and links that are roots."""

from typing import Any

import pytest
import torch

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.verify_retention import retention
from mnemic.compiler.rule import Rule
from mnemic.dsl.load import load


def rule(**entries: Any) -> Rule:
    entry = {"name": "x", "bias": "l2", "retention": entries, "optimizer": {"rate": "token"}}
    return derive_spec(load(entry))


@pytest.mark.parametrize(
    ("local", "words"),
    [
        ({"local": {"bregman": "sqrt(1+w**2)"}}, ("R′", "(−1, 1)", "w**2/2")),
        ({"local": {"bregman": "-log(w)"}}, ("R′", "(−∞, ", "w**2/2")),
        ({"local": {"bregman": "w*atan(w) - log(1+w**2)/2"}}, ("(−1.571, 1.571)",)),
        ({"local": {"f-divergence": "-log(x)"}}, ("f′", "x**2/2 to f")),
        ({"local": {"f-divergence": "hellinger"}}, ("f′", ", 1)")),
    ],
)
def test_a_bounded_range_is_told(local: dict[str, Any], words: tuple[str, ...]) -> None:
    missing = rule(**local).structure.missing
    assert missing is not None
    assert all(word in missing for word in words), missing


@pytest.mark.parametrize("local", ["sqrt(1+w**2)", "-log(w)"])
def test_beyond_the_range_the_objective_has_no_minimum(local: str) -> None:
    """min −a·w + R(w) at a dual of 2: lower and lower the larger w is."""
    w = 10.0 ** torch.arange(1, 8, dtype=torch.float64)
    generator = torch.sqrt(1 + w**2) if local.startswith("sqrt") else -torch.log(w)
    objective = -2 * w + generator
    assert bool((objective.diff() < 0).all())
    assert float(objective[-1]) < -1e6


@pytest.mark.parametrize("local", ["sqrt(1+w**2) + w**2/2", "w*atan(w) - log(1+w**2)/2 + w**2/2"])
def test_what_the_refusal_says_to_add_makes_it_solvable(local: str) -> None:
    found = rule(local={"bregman": local})
    assert found.structure.missing is None
    assert retention(found) < 1e-7


@pytest.mark.parametrize("view", ["ftrl", "learning-retaining"])
def test_a_monotone_slope_without_an_inverse_is_a_root(view: str) -> None:
    found = rule(view=view, local={"bregman": "w**2/2 + w**4/4 + cosh(w)"}, decay="token")
    assert found.retained.link.expr is None
    assert retention(found) < 1e-7
