"""How far the normalised rate η/(1 + η ℓ″‖φ‖²) keeps steps contractions, by sampling.

Along a key, with x = η‖φ‖² and r = ŷ − v, a step takes r to

    T(r) = r − x e(r)/(1 + x |ℓ″(r)|),   e = ∂ℓ/∂ŷ,

with ℓ″ where the step begins. With e″ = ∂ℓ″/∂ŷ

    1 − T′ = x ℓ″/(1 + x ℓ″) − x² e e″/(1 + x ℓ″)²,

so two memories approach each other at every x where ℓ″ is constant (e″ = 0), or grows away from v
no faster than e e″ ≤ ℓ″². Where ℓ″ decreases away from v, −e e″ is positive and 1 − T′ exceeds 2
beyond some x; where ℓ″ jumps down, so does T, and no rate contracts. Errors may still shrink,
|T(r)| < |r|: this holds while x e/(1 + x ℓ″) < 2 r, so at every x where e ≤ 2 r ℓ″.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import mpmath  # type: ignore[import-untyped]
import sympy as sp

from mnemic.compiler import error_signal
from mnemic.compiler import symbols as sym
from mnemic.compiler.convexity import VALUES
from mnemic.compiler.error_signal import RESIDUAL, ErrorSignal
from mnemic.compiler.explain.spans import ranges
from mnemic.compiler.numbers import sampler
from mnemic.compiler.points import points
from mnemic.compiler.rule import Rule
from mnemic.compiler.steepness import couples

DENSITY: Final = 8
"""Places at which a loss is looked at, in a decade."""
RESIDUALS: Final = tuple(10 ** (p / DENSITY) for p in range(-12 * DENSITY, 4 * DENSITY + 1))
"""Distances of ŷ from v."""
NEAREST: Final = 1e-4
"""The least distance from a v where e is none of ŷ − v, and so not small."""
STEPS: Final = tuple(10 ** (p / 6) for p in range(-3 * 6, 6 * 6 + 1))
"""Sizes x of a step that are tried."""
ROUNDING: Final = 1e-6
DEEP: Final = 40
"""Halvings of an interval after which what still differs at its ends jumps."""
HALVINGS: Final = 10
"""How often the interval with the steepest secant is halved."""
FINER: Final = 24
"""Parts into which the places near the largest share are cut."""
NEAR: Final = 0.3
"""ℓ″ counts as alike at two places when it differs by no larger part of itself."""
SPARE: Final = 30
"""Digits in which e and ℓ″ are computed, so that differences of near places have some."""

Parts = tuple[float, float]
"""e and |ℓ″| at a place; or a place, and what a step takes there."""
Row = tuple[float, Parts]


@dataclass(frozen=True)
class Reach:
    """Up to which x = η‖φ‖² steps contract, and up to which errors shrink.

    ``oo`` for every rate, 0 for none, ``None`` where it is not known (errors of a loss that has no
    value to leave, or beside a decay, whose fixed point is not v).
    """

    contracts: float
    shrinks: float | None


def reach(rule: Rule, least: float, room: float, *, alone: bool) -> Reach:
    """Return the reach of a rule's normalised rate: steps contract while x ∂(e/(1 + x|ℓ″|))/∂ŷ
    stays between ``least`` and ``room``.

    ``alone`` says that nothing but the step moves the memory, so that errors may shrink.
    """
    smooth = getattr(rule.problem.spec.bias, "smooth", None)
    error = error_signal.derive(rule.problem.loss, smooth)
    if error.uses_norm and couples(error.signal):
        return Reach(0.0, None)  # along one coordinate n says nothing of that coordinate's error
    found = [_curves(rule.problem, point) for point in _points(rule)]
    flat = [curve for curves in found for curve in curves]
    contracts = min(_edge(partial(_contracts, curve, least, room)) for curve in flat)
    if not alone or any(curve.value is not None for curve in flat):
        return Reach(contracts, None)
    return Reach(contracts, min(_edge(c.shrinks) for c in flat))


def _contracts(curve: "_Curve", least: float, room: float, x: float) -> bool:
    """Return whether a step of size x contracts on one curve."""
    return curve.contracts(x, least, room)


def _points(rule: Rule) -> list[dict[Any, float]]:
    """Put the loss's coefficients at the least, middle and largest of where they start."""
    spans = ranges(rule)
    names = sorted(rule.problem.loss.free_symbols & spans.keys(), key=str)
    few = []
    for name in names:
        inside = sorted(spans[name])[1:-1] or spans[name]
        few.append([inside[len(inside) // 4], inside[len(inside) // 2], inside[-len(inside) // 4]])
    return [dict(zip(names, map(sp.Float, point), strict=True)) for point in points(few)]


@dataclass(frozen=True)
class _Curve:
    """Places in order with their e and |ℓ″|, both sides of each jump among them.

    ``breaks`` says that ℓ″ jumps where e is not zero; ``value`` is v where e is not of ŷ − v.
    """

    at: Callable[[float], Parts | None]
    rows: tuple[Row, ...]
    breaks: bool
    value: float | None = None

    def contracts(self, x: float, least: float, room: float) -> bool:
        """Return whether all secants of the step's change lie between ``least`` and ``room``."""
        if self.breaks:
            return False
        points = [(r, _taken(parts, x)) for r, parts in self.rows]
        pairs = list(pairwise(points))
        steepest, flattest = max(pairs, key=_secant), min(pairs, key=_secant)
        return (
            self._refined(steepest, x, 1) <= room * (1 + ROUNDING)
            and self._refined(flattest, x, -1) >= least - ROUNDING
        )

    def _refined(self, ends: tuple[Parts, Parts], x: float, sign: int) -> float:
        """Return the largest secant (``sign`` 1; the least for −1) of an interval, by halving."""
        best = sign * _secant(ends)
        for _ in range(HALVINGS):
            middle = (ends[0][0] + ends[1][0]) / 2
            parts = self.at(middle)
            if parts is None:
                break
            halfway = (middle, _taken(parts, x))
            ends = max(((ends[0], halfway), (halfway, ends[1])), key=lambda z: sign * _secant(z))
            best = max(best, sign * _secant(ends))
        return sign * best

    def shrinks(self, x: float) -> bool:
        """Return whether |T(r)| ≤ |r| at every place, and between those where it is largest."""
        shares = [_taken(parts, x) / r for r, parts in self.rows]
        most = max(range(len(shares)), key=shares.__getitem__)
        near = [r for r, _ in self.rows[max(most - 1, 0) : most + 2]]
        between = (near[0] + (near[-1] - near[0]) * i / FINER for i in range(1, FINER))
        more = [_taken(parts, x) / r for r in between if r and (parts := self.at(r)) is not None]
        return max(*shares, *more) <= 2 * (1 + ROUNDING) and min(shares) >= 0


def _secant(ends: tuple[Parts, Parts]) -> float:
    return (ends[1][1] - ends[0][1]) / (ends[1][0] - ends[0][0])


def _jump(at: Callable[[float], Parts | None], left: Row, right: Row) -> tuple[Row, Row] | None:
    """Find the two sides of a jump of ℓ″ between two places, by halving; None without one."""
    for _ in range(DEEP):
        if _alike(left, right):
            return None
        middle = (left[0] + right[0]) / 2
        parts = at(middle)
        if parts is None:
            return None
        first = abs(parts[1] - left[1][1]) > abs(right[1][1] - parts[1])
        left, right = (left, (middle, parts)) if first else ((middle, parts), right)
    return left, right


def _alike(left: Row, right: Row) -> bool:
    """Return whether ℓ″ is nearly equal at two places, or the step there is negligible."""
    most, size = max(left[1][1], right[1][1]), max(abs(left[0]), abs(right[0]))
    small = max(abs(left[1][0]), abs(right[1][0])) <= ROUNDING * most * size
    return small or abs(left[1][1] - right[1][1]) <= NEAR * most


def _taken(parts: Parts, x: float) -> float:
    return x * parts[0] / (1 + x * parts[1])


def _curves(problem: Any, point: dict[Any, float]) -> list[_Curve]:
    smooth = getattr(problem.spec.bias, "smooth", None)
    error = error_signal.derive(problem.loss, smooth)
    parts = [z.subs(point) for z in _along(error)]
    moved = error.signal.subs(sym.y, sym.e + sym.v).expand()
    if error.uses_norm or not moved.has(sym.v):
        return [_curve(parts, 0.0, None)]
    return [_curve(parts, v, v) for v in VALUES]


def _along(error: ErrorSignal) -> tuple[Any, Any]:
    """Return e and |ℓ″| of one coordinate; for a loss of the norm along it, by the larger slope."""
    if not error.uses_norm:
        return error.signal, sp.Abs(error.slope)
    size = sp.Abs(RESIDUAL)
    slopes = error.slope, error.slope + error.radial * sym.n**2
    return error.signal.subs(sym.n, size), sp.Max(*(z.subs(sym.n, size) for z in slopes))


def _curve(parts: Sequence[Any], v: float, value: float | None) -> _Curve:
    error, curvature = (sampler(z, [sym.y, sym.v]) for z in parts)

    def at(r: float) -> Parts | None:
        with mpmath.workdps(SPARE):
            place = mpmath.mpf(v) + mpmath.mpf(r)
            found = error(place, v), curvature(place, v)
        finite = [z for z in found if z is not None and math.isfinite(z)]
        return (finite[0], finite[1]) if len(finite) == 2 else None

    least = 0.0 if value is None else NEAREST
    sizes = [r for r in RESIDUALS if r >= least]
    found = [(r, at(r)) for r in sorted(side * r for r in sizes for side in (-1, 1))]
    rows = [(r, pair) for r, pair in found if pair is not None]
    jumps = [jump for a, b in pairwise(rows) if (jump := _jump(at, a, b)) is not None]
    every = sorted({*rows, *(side for jump in jumps for side in jump)})
    return _Curve(at, tuple(every), bool(jumps), value)


def _edge(holds: Callable[[float], bool]) -> float:
    """Find the least x from which a condition fails: ∞ if it holds at every x, 0 if at none."""
    low = 0.0
    for x in STEPS:
        if not holds(x):
            break
        low = x
    else:
        return math.inf
    if low == 0:
        return 0.0
    high = low * STEPS[1] / STEPS[0]
    for _ in range(20):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
