"""The kernel of features that is a power series, φ(x)·φ(y) = Σ_i a_i (x·y)^i, a_i ≥ 0."""

from collections.abc import Iterator
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.indices import places_of
from mnemic.compiler.numbers import sampler
from mnemic.compiler.points import points
from mnemic.compiler.problem import TIME, Problem
from mnemic.compiler.rule import Derived
from mnemic.dsl.features import Polynomial, Taylor
from mnemic.errors import InvalidSpec, Issue


def series(problem: Problem) -> tuple[Any, ...] | None:
    """Return a_0, a_1, … in coefficients and the head; None for a map that is no series."""
    match problem.spec.features:
        case Taylor(order=order):
            return tuple(1 / sp.factorial(i) for i in range(order + 1))
        case Polynomial(mode="power", degree=degree):
            return (*(sp.Integer(0),) * degree, sp.Integer(1))
        case Polynomial() as features:
            return tuple(problem.value(name) for name, _, _ in features.coefficients())
    return None


def kernel(problem: Problem, product: Any) -> Any | None:
    """Return Σ_i a_i (x·y)^i at a product x·y, where the features have such a kernel."""
    weights = series(problem)
    if weights is None:
        return None
    return sum(a * product**i for i, a in enumerate(weights))


def trail(problem: Problem) -> tuple[Derived, ...]:
    """Return φ as a line of the derivation: the map entry by entry, its kernel or its formula;
    nothing for φ(x) = x and for a map known only by its kernel."""
    entry, weights = problem.spec.features, series(problem)
    if problem.features is not None:
        told = sp.Eq(sp.Symbol("phi"), problem.features, evaluate=False)
        return () if problem.features == sym.x else (Derived("features", told, "entry by entry"),)
    if weights is not None:
        terms = [_term(a, i) for i, a in enumerate(weights) if a != 0]
        reason = "features of degree i by √aᵢ" if any(entry.coefficients()) else "as stated"
        return (Derived("features", f"φ(x)·φ(y) = {' + '.join(terms)}", reason),)
    return () if entry.formula is None else (Derived("features", entry.formula, "as stated"),)


def _term(weight: Any, degree: int) -> str:
    """Write a_i (x·y)^i as text."""
    power = "" if degree == 0 else "(x·y)" if degree == 1 else f"(x·y)^{degree}"
    shown = str(weight).replace("**", "^").replace("*", " ")
    shown = f"({shown})" if weight.is_Add else shown
    return power if power and weight == 1 else f"{shown} {power}".rstrip()


def check(problem: Problem) -> None:
    """Raise ``InvalidSpec`` where an a_i moves with time or may be negative.

    √a_i scales the features of degree i, so a negative one has none.
    """
    found = [*_issues(problem)]
    if found:
        raise InvalidSpec(found)


def _issues(problem: Problem) -> Iterator[Issue]:
    inputs = {s.symbol for s in problem.scalars if s.declared.origin == "input"}
    values = places_of(problem)
    for name, place, _ in problem.spec.features.coefficients():
        expr, where = problem.value(name), f"features.{place}"
        moving = sorted(map(str, expr.free_symbols & {TIME, *inputs}))
        if moving:
            reason = "a feature map is the same at every token, and this a_i is not"
            yield Issue(reason, where, str(expr), hint=f"leave out {', '.join(moving)}")
        elif _least(expr, values) < 0:
            reason = "a_i may be negative, and features of degree i are as large as its root"
            yield Issue(reason, where, str(expr), hint="activation: softplus keeps it above 0")


def _least(expr: Any, values: dict[Any, list[float]]) -> float:
    """Return an expression's least value, coefficients at the least, middle and largest of
    theirs."""
    free = sorted(expr.free_symbols, key=str)
    at = sampler(expr, free)
    found = (at(*point) for point in points([values[s] for s in free]))
    return min((x for x in found if x is not None), default=0.0)
