"""The largest slope of an error signal, from which safe rates follow."""

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.implicit import largest_slope, roots_of
from mnemic.compiler.kinks import beside, is_jump, kinks
from mnemic.compiler.numbers import sampler

SIZES = tuple(10.0**power for power in range(-12, 13))
"""Residuals on either side at which slopes are looked at; what the first or last eight have beyond
the others grows without end."""

STEP = 1 / 16
PLACES = tuple((i + 0.5) * STEP for i in range(-192, 192))
"""Residuals of a linear grid, none of them zero, where a slope may be no number."""

VALUES = (0.0, *(side * size for size in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0) for side in (1, -1)))
"""Values v at which slopes are looked at."""

FAR = (1e4, -1e4, 1e8, -1e8)
"""Values beyond all that occur, at which slopes that grow with v are far steeper."""

NORMS = (0.5, 2.0, 8.0)
"""Norms of ŷ − v at which one coordinate of it is moved alone."""

GROWTH = 1.001
"""A slope that still grows by this much counts as growing without end."""

NEAR, DIGITS = 1e-3, 60
"""Sizes of residuals below which slopes are computed with so many digits."""

_MATH = [
    {
        "sigmoid": lambda z: 0.5 * (1 + math.tanh(z / 2)),
        "softplus": lambda z: max(z, 0.0) + math.log1p(math.exp(-abs(z))),
        "normal_cdf": lambda z: 0.5 * math.erfc(-z / math.sqrt(2)),
        "sign": lambda z: math.copysign(1.0, z) if z else 0.0,
    },
    "math",
]


def bound(signal: Any, slope: Any, radial: Any) -> Any | None:
    """Return sup |∂e/∂ŷ| by sampling, coefficients at one; ``oo`` where it is unbounded, ``None``
    where it is undefined somewhere.

    Slopes are sampled on a logarithmic and on a linear grid of residuals, refined where they are
    steepest, and at several values v if the error depends on v other than by ŷ − v. Secants are
    taken on a linear grid, so that jumps count. Both sides of every kink are sampled, however far.
    """
    if roots_of(signal):
        return largest_slope(signal)
    jumps = signal.has(sp.sign, sp.Piecewise, sym.round)
    if not (slope.has(sym.y, sym.n, sym.v) or radial.has(sym.n) or jumps):
        return sp.Abs(slope)
    found = Slopes(signal, slope, radial)
    steep = [found.at(side * size) for size in SIZES for side in (1, -1)]
    sizes = [size for size in steep if size is not None]
    if len(sizes) < len(steep):
        return None
    peak = max(*sizes[16:-16], found.near, found.beside_kinks)
    if math.isinf(peak):
        return sp.oo
    far = found.far
    apart = signal.has(sym.n) and couples(signal)  # one coordinate may be small where n is not
    grows = max(far, *sizes) > 2 * peak + 1e-12 or found.jumps(peak)
    grows = grows or (apart and any(found.jumps(peak, n) for n in NORMS))
    grows = grows or any(is_jump(found.value, kink) for kink in found.kinks)
    return sp.oo if grows else sp.Float(round(max(peak, far, *sizes[:16]), 6))


def couples(signal: Any) -> bool:
    """Return whether an error of the norm is no multiple of ŷ − v, as that of a mixture of losses.

    >>> residual = sym.y - sym.v
    >>> couples(residual / sym.n), couples(sp.Piecewise((residual, sym.n <= 1), (1, True)))
    (False, True)
    """
    return bool(sp.cancel(signal / (sym.y - sym.v)).has(sym.y, sym.v))


class Slopes:
    """Slopes of an error signal at residuals and values, along a coordinate and the residual."""

    def __init__(self, signal: Any, slope: Any, radial: Any) -> None:
        """Place coefficients at one."""
        free = (signal.free_symbols | radial.free_symbols) - {sym.y, sym.n, sym.v}
        parts = [z.subs(dict.fromkeys(free, 1)) for z in (slope, slope + radial * sym.n**2, signal)]
        placed = [z.subs(sym.y, sym.e + sym.v) for z in parts]
        self.alone = not any(z.has(sym.v) for z in placed)
        names = [sym.e, sym.n, sym.v]
        self.sample = sp.lambdify(names, placed, _MATH)
        self.exact = [sampler(z, names) for z in placed]
        self._alone = placed[2].subs({sym.n: sp.Abs(sym.e), sym.v: 0})

    @cached_property
    def near(self) -> float:
        """The steepest slope over residuals at values that occur."""
        return self._steepest(VALUES)

    @cached_property
    def far(self) -> float:
        """The steepest slope at values beyond all that occur."""
        return self._steepest(FAR)

    @cached_property
    def kinks(self) -> list[float]:
        """The residuals away from zero at which the error may have a kink, v at zero."""
        found = kinks(self._alone, [sym.e])()
        return [kink for kink in found if NEAR < abs(kink) < SIZES[-1]]

    @property
    def beside_kinks(self) -> float:
        """The steepest slope on either side of a kink."""
        return max((self._size(e, 0.0) for kink in self.kinks for e in beside(kink)), default=0.0)

    @property
    def grows_with_value(self) -> bool:
        """Whether slopes grow without end as the value does, and not as the residual does."""
        sizes = [self._size(side * size, 0.0) for size in SIZES for side in (1, -1)]
        return self.far > 2 * max(self.near, *sizes) + 1e-12

    def _steepest(self, values: Sequence[float]) -> float:
        """Return the steepest slope over several values v, only 0 where slopes depend on ŷ − v."""
        return max(self.peak(v) for v in ((0.0,) if self.alone else values))

    def at(self, e: float, v: float = 0.0) -> float | None:
        """Return the steepest slope at a residual: near zero, where parts of a radial slope cancel,
        and where floating-point numbers overflow, by more digits."""
        if abs(e) > NEAR:
            try:
                return max(abs(float(value)) for value in self.sample(e, abs(e), v)[:2])
            except OverflowError:
                pass
            except (TypeError, ValueError, ZeroDivisionError):
                return None
        with mpmath.workdps(DIGITS):
            found = [one(e, abs(e), v) for one in self.exact[:2]]
        numbers = [abs(value) for value in found if value is not None]
        if len(numbers) == len(found):
            return float(max(numbers))
        return math.inf if abs(e) > NEAR else None

    def peak(self, v: float) -> float:
        """Return the steepest slope over residuals at a value, 0 where there is no number."""
        found = {e: self._size(e, v) for e in PLACES}
        close = [side * size for size in SIZES[:12] for side in (1, -1)] if v else []
        narrow = [self._size(e, v) for size in close for e in (size, size - v)]  # near v and zero
        top = max(PLACES, key=lambda e: found[e])
        return max(*narrow, found[top], self.climb(top - STEP, top + STEP, v))

    def climb(self, low: float, high: float, v: float = 0.0) -> float:
        """Return the steepest slope around one peak, ``inf`` where it grows to the last digits."""
        found = [0.0]
        for _ in range(75):  # by thirds
            left, right = low + (high - low) / 3, high - (high - low) / 3
            sizes = self._size(left, v), self._size(right, v)
            low, high = (low, right) if sizes[0] > sizes[1] else (left, high)
            found.append(max(found[-1], *sizes))
        last = found[-30::10] + found[-1:]
        return math.inf if all(b > GROWTH * a for a, b in pairwise(last)) else found[-1]

    def value(self, e: float) -> float:
        """Return the error signal at a residual, v at zero."""
        try:
            return float(self.sample(e, abs(e), 0.0)[2])
        except (OverflowError, TypeError, ValueError, ZeroDivisionError):
            found = self.exact[2](e, abs(e), 0.0)
            return math.inf if found is None else found

    def _size(self, e: float, v: float) -> float:
        found = self.at(e, v)
        return 0.0 if found is None or math.isnan(found) else found

    def jumps(self, peak: float, norm: float | None = None) -> bool:
        """Return whether a secant over 1/1000 is far steeper than any slope, the ``peak``.

        At one ``norm`` of ŷ − v, or where its size is that of the one coordinate.
        """
        step = 0.001
        places = [step * (i + 0.5) for i in range(-4000, 4000)]
        values = [float(self.sample(e, abs(e) if norm is None else norm, 0.0)[2]) for e in places
                  if norm is None or abs(e) <= norm]  # fmt: skip
        return max(abs(b - a) for a, b in pairwise(values)) > max(0.1, 2 * step * peak)
