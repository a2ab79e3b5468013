"""Links on a simplex, written in the distance of the dual to the slope's upper limit.

Where a slope s (f′, or R′) stays below s(∞) = H, its inverse has a pole at H. Near it w depends
only on the distance u = H − a, and computing H − a in floating point loses all its digits. So both
s(w) and its inverse are written in u, in a form that does not cancel. Without a pole u is −a.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import spelled
from mnemic.compiler.symbolic import simplified, tidy

u = sp.Symbol("u", real=True)
"""The distance to the pole; without one, minus the dual."""

PLACES = tuple(10.0**p for p in (-150, -12, -9, -6, -4, -2, -1, 0, 1, 2, 4, 6, 9, 12))
"""Where forms are compared."""

NEAR = sp.Float(1e-36)
"""A distance that is none: x itself is held below what the highest entry has."""

EXACT = 1e-13
"""A relative error that is rounding."""

DIGITS = 80


@dataclass(frozen=True)
class Distances:
    """A slope s on w > 0 and its inverse, by distances.

    ``distance`` is H − s(w) as a function of w, which decreases. ``entry`` is its inverse in
    ``u``: zero where the constraint w ≥ 0 binds, ``None`` without a closed form. ``flow`` is
    w s′(w). ``pole`` says whether the inverse has a pole at H, ``end`` is the upper end of w.
    """

    distance: Any
    entry: Any | None
    flow: Any
    pole: bool
    end: Any = sp.oo


def distances(slope: Any, inverse: Any | None, end: Any) -> Distances:
    """Write a slope in w, and its inverse in a, in distances; ``end`` is the upper end of w."""
    w = sp.Symbol("w", positive=True)
    known = slope.subs(sym.w, w)
    highest, lowest = limit(known, w, end, "-"), limit(known, w, sp.Integer(0), "+")
    pole = end == sp.oo and highest != sp.oo
    top = highest if pole else sp.Integer(0)
    entry = None if inverse is None else _entry(inverse, top, pole)
    if entry is not None:
        entry = _within(entry, top - lowest, highest, end, pole=pole)
    joint = simplified(top**2 - known**2) / (top + known)
    distance = steadiest(top - known, w, joint).subs(w, sym.w)
    flow = steadiest(w * tidy(sp.diff(known, w)), w).subs(w, sym.w)
    return Distances(distance, entry, flow, pole, end)


def _within(entry: Any, cut: Any, highest: Any, end: Any, *, pole: bool) -> Any:
    """Extend the inverse to all distances: w is 0 from ``cut`` on, where w ≥ 0 binds, and at the
    end of its domain for distances smaller than any that the slope attains."""
    branches = []
    if pole:
        branches.append((sp.oo, u <= NEAR))
    if sp.oo not in (end, highest):
        branches.append((end, u <= -highest))
    branches.append((entry, u < cut if cut != sp.oo else True))
    return sp.Piecewise(*branches, (0, True)) if len(branches) > 1 or cut != sp.oo else entry


def _entry(inverse: Any, top: Any, pole: bool) -> Any:
    if not pole:
        return inverse.subs(sym.a, -u)
    positive = sp.Symbol("u", positive=True)
    return steadiest(inverse.subs(sym.a, top - positive), positive).subs(positive, u)


def limit(slope: Any, symbol: Any, end: Any, side: str) -> Any:
    """Return the limit of a slope; infinite where SymPy finds no finite one."""
    try:
        found = sp.limit(slope, symbol, end) if end == sp.oo else sp.limit(slope, symbol, end, side)
    except (NotImplementedError, ValueError, TypeError):
        return sp.oo if end != 0 else -sp.oo
    strange = found.has(sp.oo, -sp.oo, sp.zoo, sp.nan, sp.Limit, sp.AccumBounds)
    if strange or found.is_finite is False:
        return sp.oo if end != 0 else -sp.oo
    return found


def steadiest(expr: Any, symbol: Any, *more: Any) -> Any:
    """Return the form of an expression in a positive symbol that loses the fewest digits."""
    true = _digits(expr, symbol)
    found = [(_lost(form, symbol, true), form) for form in chain(_forms(expr), more)]
    exact = [form for lost, form in found if lost < EXACT]
    if exact:
        return min(exact, key=lambda form: (_guarded(form, symbol), sp.count_ops(form)))
    return min(found, key=lambda pair: pair[0])[1]


def _guarded(form: Any, symbol: Any) -> bool:
    """Return whether a root is one of a sum that vanishes, which code keeps above zero."""
    at_zero = (
        p.base.subs(symbol, 0) for p in form.atoms(sp.Pow) if p.base.is_Add and not p.exp.is_Integer
    )
    return any(z.is_zero for z in at_zero)


def _forms(expr: Any) -> Iterator[Any]:
    """Yield spellings of an expression: as it is, and by each rewrite, plain and factored."""
    yield expr
    for rewrite in REWRITES:
        try:
            found = rewrite(expr)
        except (NotImplementedError, ValueError, TypeError, AttributeError):
            continue
        yield _small(found)
        yield _small(_factored(found))


def _logs(expr: Any) -> Any:
    """Join logarithms into one, of a fraction that is taken apart."""
    joined = sp.logcombine(sp.expand_log(expr, force=True), force=True)
    return joined.replace(sp.log, lambda z: sp.log(sp.expand(sp.together(z))))


def _conjugated(expr: Any) -> Any:
    """Write A − B as (A² − B²)/(A + B)."""
    parts = sp.Add.make_args(sp.expand(expr))
    minus = sp.Add(*(p for p in parts if p.could_extract_minus_sign()))
    plus = sp.Add(*(p for p in parts if not p.could_extract_minus_sign()))
    return sp.factor(sp.simplify(plus**2 - minus**2)) / (plus - minus)


def _split_numerator(expr: Any) -> Any:
    """Split a fraction by the terms of its numerator."""
    above, below = sp.fraction(sp.together(expr))
    return sp.Add(*(simplified(term / below) for term in sp.Add.make_args(sp.expand(above))))


def _factored(expr: Any) -> Any:
    """Factor sums below powers."""
    return expr.replace(
        lambda z: z.is_Pow and z.base.is_Add, lambda z: sp.factor(sp.expand(z.base)) ** z.exp
    )


REWRITES: tuple[Callable[[Any], Any], ...] = (
    simplified,
    lambda z: z,
    lambda z: simplified(sp.expand(z)),
    lambda z: sp.factor(sp.together(z)),
    _logs,
    _conjugated,
    _split_numerator,
)
"""Ways to write an expression: none is right for all."""


def _small(expr: Any) -> Any:
    """Write exp(z) − 1 by a function of its own."""
    return expr.replace(lambda z: z.is_Add and len(z.args) == 2 and z.has(sp.exp), _less_one)


def _less_one(pair: Any) -> Any:
    for one, other in (pair.args, pair.args[::-1]):
        factor, power = one.as_independent(sp.exp, as_Add=False)
        if isinstance(power, sp.exp) and other == -factor:
            return factor * sym.expm1(power.args[0])
    return pair


def _digits(expr: Any, symbol: Any) -> list[Any]:
    """Evaluate an expression at ``PLACES`` with extra digits; nan where it has no value."""
    value = sp.lambdify(symbol, spelled(_at_rest(expr, symbol)), "mpmath")
    found = []
    with mpmath.workdps(DIGITS):
        for place in PLACES:
            try:
                found.append(mpmath.mpmathify(value(mpmath.mpf(place))))
            except (ZeroDivisionError, ValueError, OverflowError, TypeError):
                found.append(mpmath.nan)
    return found


def _lost(form: Any, symbol: Any, true: list[Any]) -> float:
    """Return the largest relative error of a form in double precision."""
    kept = _at_rest(form, symbol).replace(sym.expm1, sp.Function("expm1"))
    shown = spelled(kept).replace(
        lambda z: isinstance(z, sp.log) and z.args[0].is_Add and 1 in z.args[0].args,
        lambda z: sp.Function("log1p")(z.args[0] - 1),
    )
    names = {"log1p": math.log1p, "expm1": math.expm1}
    value = sp.lambdify(symbol, shown, [names, "math"])
    most = 0.0
    for place, expected in zip(PLACES, true, strict=True):
        if not mpmath.isfinite(expected) or mpmath.im(expected) != 0 or expected == 0:
            continue
        try:
            off = abs(mpmath.mpf(value(place)) / expected - 1)
        except (ZeroDivisionError, ValueError, TypeError):
            off = mpmath.inf
        except OverflowError:
            continue
        most = max(most, float(off) if mpmath.isfinite(off) else math.inf)
    return most


def _at_rest(expr: Any, symbol: Any) -> Any:
    """Substitute a different fixed number for each coefficient of an expression."""
    free = sorted(expr.free_symbols - {symbol}, key=str)
    return expr.subs({s: sp.Rational(7 + i, 10) for i, s in enumerate(free)})
