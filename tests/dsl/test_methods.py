"""Optimizers that act entry by entry: what the descriptions must be, and that they are enough."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import sympy as sp

import mnemic
from mnemic.compiler.oracle.stated_methods import METHODS
from mnemic.compiler.running import GRADIENT
from mnemic.dsl.load import load
from mnemic.dsl.methods import ELEMENTWISE, OPTIONS, Method
from mnemic.dsl.optimizer import OptimizerEntry, Solver
from mnemic.pipeline import derive

BETA = {"momentum": 0.9, "beta2": 0.8}


def rule(method: str, **told: Any) -> Any:
    """A rule with every coefficient that the method has."""
    names = {"momentum": "theta", "beta2": "beta2"}
    own = {n: x for n, x in BETA.items() if names[n] in ELEMENTWISE[method].coefficients}
    optimizer = {"method": method, "rate": "token", **own, **told}
    return derive(load({"mnemic": 1, "name": "one", "bias": "l2", "optimizer": optimizer}))


@pytest.mark.parametrize("method", ELEMENTWISE)
def test_a_step_does_not_follow_the_size_of_the_gradients(method: str) -> None:
    """Why a rate inside, or one that bounds by the curvature, is refused: step(c g) = step(g)."""
    applied = rule(method).applied
    scale, numbers = sp.Integer(7), {symbol: 0 for symbol, _ in applied.numbers}
    step = applied.step.subs(numbers)  # ε is no part of the argument, which it only rounds
    sizes = {GRADIENT: scale * GRADIENT}
    for average in applied.averages:
        power = sp.simplify(average.entry.subs(GRADIENT, scale * GRADIENT) / average.entry)
        sizes |= {x: power * x for x in (average.after, average.before)}
    for at in ({"g": 0.3, "S": -0.2, "s": 0.5, "S_old": 0.7}, {"g": -2, "S": 1, "s": 3}):
        values = {s: at.get(s.name, 0.1) for s in {*sizes}}
        one = step.subs(values)
        other = step.subs(sizes, simultaneous=True).subs(values)
        assert one != 0
        assert float(one) == pytest.approx(float(other))


def test_each_can_be_written_and_has_its_loop() -> None:
    assert ELEMENTWISE.keys() <= {*get_args(Method)}
    assert METHODS.keys() == ELEMENTWISE.keys()


@pytest.mark.parametrize("method", ELEMENTWISE)
def test_descriptions_are_whole(method: str) -> None:
    """Each coefficient is an argument or an option, each decay a coefficient, each option known."""
    described, fields = ELEMENTWISE[method], OptimizerEntry.model_fields
    assert set(described.options) <= set(OPTIONS) <= set(fields)
    assert {a.decay for a in described.averages} - {None} <= set(described.coefficients)
    assert set(described.coefficients) <= {"theta", *described.options}
    states = [average.state for average in described.averages]
    assert len({*states}) == len(states)


def test_averages_that_are_not_needed_go() -> None:
    """Without θ the mean is the gradient, with β₂ = 0 the mean of squares the newest square."""
    g = GRADIENT
    assert [a.state for a in rule("adam").applied.averages] == ["S", "squares"]
    assert [a.state for a in rule("adam", momentum=0).applied.averages] == ["squares"]
    bare = rule("adam", momentum=0, beta2=0).applied
    ((epsilon, value),) = bare.numbers
    assert (bare.averages, value) == ((), 1e-8)
    assert bare.step == g / (sp.Abs(g) + epsilon)


def test_a_solver_tells_how_far_from_the_minimiser_it_may_stop() -> None:
    """What is compiled asks the solver, never for its name."""
    given = {"tolerance": 1e-4, "iterations": 9}
    direct, iterated = (
        Solver.model_validate({"kind": kind, **given})
        for kind in get_args(Solver.model_fields["kind"].annotation)
    )
    assert (direct.most, direct.residual) == (0, 0.0)
    assert (iterated.most, iterated.residual) == (9, 1e-4)
    package = Path(mnemic.__file__).parent
    asked = re.compile(r"solver\.kind\s*(==|!=|in)")
    files = [p for part in ("compiler", "codegen") for p in (package / part).rglob("*.py")]
    assert [p.name for p in files if asked.search(p.read_text(encoding="utf-8"))] == []
