"""Where a function of an entry of the memory jumps: kinks of a generator, where ∇R is no number."""

from collections.abc import Iterator
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy as sp

from mnemic.compiler.numbers import spelled

NEAR, NEARER = mpmath.mpf(10) ** -6, mpmath.mpf(10) ** -11
"""Distances from a place at which both sides are looked at: without a jump they come together."""


def jump(function: Any, symbol: Any, domain: tuple[Any, Any]) -> Any | None:
    """Return a place inside a domain where a function jumps, the lowest; None where there is none.

    It is found by sampling, with coefficients at 0.7: SymPy's limits do not distinguish from which
    side of a condition they are taken.

    >>> w = sp.Symbol("w", real=True)
    >>> jump(2 * w + sp.sign(w - 1), w, (-sp.oo, sp.oo)), jump(w * sp.sign(w), w, (-1, 1))
    (1, None)
    """
    low, high = domain
    own = {s: sp.Rational(7, 10) for s in function.free_symbols - {symbol}}
    function = spelled(function.subs(own))
    value = sp.lambdify(symbol, function, "mpmath")
    for place in sorted(set(_edges(function, symbol))):
        if low < place < high:
            at = mpmath.mpf(str(sp.N(place, 30)))
            near, nearer = (abs(value(at + step) - value(at - step)) for step in (NEAR, NEARER))
            if nearer > NEAR and nearer > near / 2:
                return place
    return None


def _edges(function: Any, symbol: Any) -> Iterator[Any]:
    """Yield the numbers, as far as SymPy finds them, at which a sign or a condition turns."""
    turning = {node.args[0] for node in function.atoms(sp.sign, sp.Abs, sp.Heaviside)}
    for node in function.atoms(sp.Piecewise):
        for _, condition in node.args:
            turning |= {x.lhs - x.rhs for x in condition.atoms(sp.core.relational.Relational)}
    for expr in turning:
        try:
            found = sp.solve(expr, symbol) if expr.has(symbol) else []
        except NotImplementedError:
            continue
        yield from (place for place in found if place.is_number and place.is_real)
