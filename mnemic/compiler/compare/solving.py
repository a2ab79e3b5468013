"""Small polynomial systems solved greedily: the equation that gives one unknown goes first."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import sympy as sp

from mnemic.compiler.numbers import same_number

Solution = dict[Any, Any]


@dataclass(frozen=True)
class Clock:
    """When to give up, by processor time: a busy machine finds what an idle one does."""

    end: float

    @classmethod
    def starting(cls, seconds: float) -> "Clock":
        """Return a clock that runs out after so many seconds of work."""
        return cls(time.thread_time() + seconds)

    @property
    def out(self) -> bool:
        """Whether the time is up."""
        return time.thread_time() > self.end


def solve(equations: list[Any], unknowns: list[Any], clock: Clock) -> Iterator[Solution]:
    """Solve ``equations`` = 0; each solution gives every unknown that the equations fix."""
    table = set(unknowns)
    left = [e for e in dict.fromkeys(map(_numerator, equations)) if e != 0]
    settled = [e for e in left if not e.free_symbols & table]
    if clock.out or not all(map(_nothing, settled)):
        return
    left = [e for e in left if e.free_symbols & table and not _nothing(e)]
    if not left:
        yield {}
        return
    for unknown, value in _first(left, unknowns):
        if not _admissible(unknown, value):
            continue
        rest = [e.subs(unknown, value) if e.has(unknown) else e for e in left]
        if any(e.has(sp.nan, sp.zoo) for e in rest):
            continue
        others = [u for u in unknowns if u != unknown]
        for found in solve(rest, others, clock):
            settled = value.subs(found)
            if _admissible(unknown, settled):
                yield {unknown: simplified(settled), **found}


@cache
def simplified(value: Any) -> Any:
    """Return an expression simplified by SymPy; cached, as the same few recur."""
    return value if value.is_Symbol or value.is_number else sp.simplify(value)


@cache
def _numerator(equation: Any) -> Any:
    """Expand the numerator with its first term positive, so that equal equations are one."""
    if equation == 0:
        return equation
    if any(p.exp.is_negative for p in equation.atoms(sp.Pow)):
        equation = sp.fraction(sp.cancel(sp.together(equation)))[0]
    found = sp.expand(equation)
    return -found if found.could_extract_minus_sign() else found


@cache
def _nothing(equation: Any) -> bool:
    """Return whether an expanded numerator is zero: a polynomial by form, others in numbers."""
    if equation.is_polynomial() and not equation.has(sp.Float):
        return bool(equation == 0)
    return same_number(equation, 0, 2)


def _first(equations: list[Any], unknowns: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield ways to solve the easiest equation for one unknown, each with its value."""
    table = set(unknowns)
    for equation in sorted(equations, key=lambda e: _effort(e, table)):
        inside = sorted(equation.free_symbols & table, key=str)
        pairs = [(u, value) for u in inside for value in _roots(equation, u)]
        if pairs:
            yield from pairs
            return


def _effort(equation: Any, unknowns: set[Any]) -> tuple[int, int, str]:
    inside = equation.free_symbols & unknowns
    return len(inside), int(sp.count_ops(equation)), str(equation)


def _roots(equation: Any, unknown: Any) -> list[Any]:
    slope = sp.diff(equation, unknown)
    if not slope.has(unknown):
        return [-equation.subs(unknown, 0) / slope]
    try:
        found = sp.solve(equation, unknown)
    except (NotImplementedError, ValueError, TypeError):
        return []
    return [root for root in found if isinstance(root, sp.Expr) and not root.has(sp.I)]


def _admissible(unknown: Any, value: Any) -> bool:
    """Return whether a value may be taken: finite, real, and not negative for a size."""
    if value.has(sp.zoo, sp.nan, sp.I):
        return False
    return not (unknown.is_positive and value.is_negative)
