"""The error signal e = ∂ℓ/∂ŷ and its slope ∂e/∂ŷ, derived from the loss.

A loss is a sum over coordinates of f(ŷ_i, v_i), or a radial h(n) with n = ‖ŷ − v‖, or a sum of
f with n in its conditions (almost everywhere the gradient of f alone).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.implicit import largest_slope, roots_of
from mnemic.compiler.numbers import sampler, vanishes
from mnemic.compiler.symbolic import GROWING, simplest, simplified, tidy

RESIDUAL = sym.y - sym.v


@dataclass(frozen=True)
class ErrorSignal:
    """e as an expression in y, v of one coordinate, n, κ = ‖φ‖² and coefficients.

    ``slope`` is ∂e/∂ŷ along the coordinate with n held; for a radial loss e = g(n)(ŷ − v) the
    Jacobian is slope·I + ``radial``·(ŷ − v)(ŷ − v)ᵀ, else ``radial`` is 0. ``bound`` is
    sup |∂e/∂ŷ|, ``oo`` where there is none, ``None`` where it could not be found.
    """

    signal: Any
    slope: Any
    radial: Any
    bound: Any | None

    @property
    def uses_norm(self) -> bool:
        """Whether the coordinates are coupled through n."""
        return bool(self.signal.has(sym.n))

    @property
    def constant(self) -> bool:
        """Whether e does not depend on the prediction (the additive class)."""
        return not self.signal.has(sym.y, sym.n)

    @property
    def affine(self) -> bool:
        """Whether e = slope·ŷ + offset with a slope that no prediction or value enters."""
        if self.uses_norm or self.slope.has(sym.y, sym.v):
            return False
        return not sp.expand(self.signal - self.slope * sym.y).has(sym.y)

    @property
    def bounded(self) -> bool:
        """Whether ∂e/∂ŷ is known to be bounded."""
        return self.bound is not None and bool(self.bound.is_finite)

    @property
    def offset(self) -> Any:
        """e at ŷ = 0: what the step writes, for an affine error."""
        return self.signal.subs(sym.y, 0)


def derive(loss: Any, smooth: float | None = None) -> ErrorSignal:
    """Return ∂ℓ/∂ŷ of a loss in e, y, v or n; ``smooth`` puts tanh(a x) for sign(x)."""
    if loss.has(sym.n) and not loss.has(sym.e, sym.y, sym.v):
        gain = sp.piecewise_fold(_clean(sp.diff(loss, sym.n), smooth) / sym.n)
        gain = simplest(gain, simplified(gain), sp.expand(gain))
        return with_slope(gain * RESIDUAL, sp.diff(gain, sym.n) / sym.n)
    if loss.has(sym.y, sym.v):
        return with_slope(_clean(sp.diff(loss.subs(sym.e, RESIDUAL), sym.y), smooth))
    return with_slope(_clean(sp.diff(loss, sym.e), smooth).subs(sym.e, RESIDUAL))


def with_slope(signal: Any, radial: Any = sp.Integer(0)) -> ErrorSignal:
    """Return the error signal of an expression that is given, with its derivatives."""
    radial = tidy(radial)
    if roots_of(signal):
        return ErrorSignal(signal, sp.diff(signal, sym.y), radial, largest_slope(signal))
    in_residual = sp.expand(signal.subs(sym.y, sym.e + sym.v))
    if in_residual.has(sym.v):
        slope = tidy(sp.diff(signal, sym.y))
        slope = simplest(slope, sp.factor(slope)) if not slope.has(sp.Piecewise) else slope
    else:
        in_residual = signal.subs(RESIDUAL, sym.e).subs(sym.y, sym.e + sym.v)
        slope = _by_parity(tidy(sp.diff(in_residual, sym.e)))
        slope = slope.subs(sym.e, RESIDUAL)
    return ErrorSignal(signal, slope, radial, bound(signal, slope, radial))


def _clean(signal: Any, smooth: float | None) -> Any:
    signal = _by_parity(tidy(simplest(signal, sp.expand(signal))))
    if smooth is not None:
        steep = sp.Integer(int(smooth)) if smooth == int(smooth) else sp.Float(smooth)
        signal = signal.replace(sp.sign, lambda z: sp.tanh(steep * z))
        signal = signal.replace(sp.Abs, lambda z: sp.sqrt(z**2 + 1 / steep**2))
    return signal


def _bounded(expression: Any) -> Any:
    """Return what ``simplified`` makes of an expression, unless that brings in overflow."""
    found = simplified(expression)
    return expression if found.has(*GROWING) and not expression.has(*GROWING) else found


def _by_parity(signal: Any) -> Any:
    """Write an odd or even function of e with |e| or sign(e) in it by its positive branch."""
    if not signal.has(sp.Abs, sp.sign) or (signal.has(sp.Piecewise) and not signal.has(sp.Eq)):
        return signal
    if not signal.has(sym.e):
        return signal
    size = sp.Symbol("size", positive=True)
    right, left = (_bounded(signal.subs(sym.e, sign * size)) for sign in (1, -1))
    if vanishes(right - left):
        return right.subs(size, sp.Abs(sym.e))
    if vanishes(right + left):
        return _odd(right, size)
    return signal


def _odd(right: Any, size: Any) -> Any:
    """Return an odd function of e from its positive branch: e g(|e|), where g is a number at zero.

    sign(e) f(|e|) is the same but for its slope at zero, which is none to automatic
    differentiation; where f is steep there, or jumps, or is flat, it may stay.
    """
    gain = sp.cancel(right / size)
    at_zero = gain.subs(size, 0)
    if at_zero.is_finite is not False and not at_zero.has(sp.nan) and at_zero != 0:
        return sym.e * gain.subs(size, sp.Abs(sym.e))
    return sp.sign(sym.e) * right.subs(size, sp.Abs(sym.e))


def bound(signal: Any, slope: Any, radial: Any) -> Any | None:
    """Return sup |∂e/∂ŷ| by sampling, coefficients at one; ``oo`` where it grows without end.

    Slopes are sampled on a logarithmic grid of residuals, on a linear one, which is refined where
    they are steepest, and of an error that depends on v beside ŷ − v at several values; secants on
    a linear grid, so that jumps count.
    """
    if roots_of(signal):
        return largest_slope(signal)
    jumps = signal.has(sp.sign, sp.Piecewise, sym.round)
    if not (slope.has(sym.y, sym.n, sym.v) or radial.has(sym.n) or jumps):
        return sp.Abs(slope)
    free = (signal.free_symbols | radial.free_symbols) - {sym.y, sym.n, sym.v}
    parts = [z.subs(dict.fromkeys(free, 1)) for z in (slope, slope + radial * sym.n**2, signal)]
    sample = sp.lambdify((sym.y, sym.n), [z.subs(sym.v, 0) for z in parts], _MATH)
    exact = [sampler(z.subs(sym.v, 0), [sym.y, sym.n]) for z in parts[:2]]
    steep = [_steepest(sample, exact, 10.0**power) for power in range(-12, 13)]
    if None in steep:
        return None
    sizes = [size for size in steep if size is not None]
    steepness = Steepness(parts[:2])
    peak = max(*sizes[8:-8], *(steepness.peak(v) for v in steepness.values(VALUES)))
    far = max(steepness.peak(v) for v in steepness.values(FAR))
    if math.isinf(peak):
        return sp.oo
    apart = signal.has(sym.n) and couples(signal)  # one coordinate may be small where n is not
    grows = max(sizes) > 2 * peak + 1e-12 or _jumps(sample, peak)
    grows = grows or far > 2 * peak + 1e-12
    grows = grows or (apart and any(_jumps(sample, peak, n) for n in NORMS))
    return sp.oo if grows else sp.Float(round(max(peak, far), 6))


VALUES = (0.0, *(side * size for size in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0) for side in (1, -1)))
"""Values v at which slopes are looked at."""

FAR = (1e4, -1e4, 1e8, -1e8)
"""Values beyond all that occur, at which slopes that grow with v are far steeper."""


class Steepness:
    """The steepest slope over residuals, at a value v."""

    def __init__(self, parts: Sequence[Any]) -> None:
        placed = [z.subs(sym.y, sym.e + sym.v) for z in parts]
        self.alone = not any(z.has(sym.v) for z in placed)
        names = (sym.e, sym.n, sym.v)
        self.sample = sp.lambdify(names, placed, _MATH)
        self.exact = [sampler(z, [*names]) for z in placed]

    def values(self, wanted: Sequence[float]) -> Sequence[float]:
        """Return the values to look at: one where slopes depend on ŷ − v alone."""
        return wanted[:1] if self.alone else wanted

    def peak(self, v: float) -> float:
        """Return the steepest slope at a value, 0 where there is no number."""
        found = {e: self._at(e, v) for e in PLACES}
        top = max(PLACES, key=lambda e: found[e])
        return max(found[top], self._refined(top, v))

    def _at(self, e: float, v: float) -> float:
        try:
            found = max(abs(float(value)) for value in self.sample(e, abs(e), v))
        except OverflowError:
            numbers = [one(e, abs(e), v) for one in self.exact]
            return max(math.inf if value is None else abs(value) for value in numbers)
        except (TypeError, ValueError, ZeroDivisionError):
            return 0.0
        return 0.0 if math.isnan(found) else found

    def _refined(self, top: float, v: float) -> float:
        """Return the steepest slope near a place of the grid, by thirds."""
        low, high = top - STEP, top + STEP
        for _ in range(40):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, right) if self._at(left, v) > self._at(right, v) else (left, high)
        return self._at((low + high) / 2, v)


STEP = 1 / 16
PLACES = tuple((i + 0.5) * STEP for i in range(-192, 192))
"""Residuals of a linear grid, none of them zero, where a slope may be no number."""

NORMS = (0.5, 2.0, 8.0)
"""Norms of ŷ − v at which one coordinate of it is moved alone."""


def couples(signal: Any) -> bool:
    """Return whether an error of the norm is no multiple of ŷ − v, as that of a mixture of losses.

    >>> couples(RESIDUAL / sym.n), couples(sp.Piecewise((RESIDUAL, sym.n <= 1), (1, True)))
    (False, True)
    """
    return bool(sp.cancel(signal / RESIDUAL).has(sym.y, sym.v))


def _jumps(sample: Any, peak: float, norm: float | None = None) -> bool:
    """Return whether a secant over 1/1000 is far steeper than any slope, the ``peak``.

    At one ``norm`` of ŷ − v, or where its size is that of the one coordinate.
    """
    step = 0.001
    places = [step * (i + 0.5) for i in range(-4000, 4000)]
    values = [float(sample(y, abs(y) if norm is None else norm)[2]) for y in places
              if norm is None or abs(y) <= norm]  # fmt: skip
    return max(abs(b - a) for a, b in pairwise(values)) > max(0.1, 2 * step * peak)


def _steepest(sample: Any, exact: Sequence[Any], size: float) -> float | None:
    """Return the steepest slope at a residual of a size, on either side: near zero, where parts of
    a radial slope cancel, and where floating-point numbers overflow, by more digits."""
    if size > NEAR:
        try:
            points = [sample(point, size) for point in (size, -size)]
            return max(abs(float(value)) for row in points for value in row[:2])
        except OverflowError:
            pass
        except (TypeError, ValueError, ZeroDivisionError):
            return None
    with mpmath.workdps(DIGITS):
        found = [one(point, size) for one in exact for point in (size, -size)]
    numbers = [abs(value) for value in found if value is not None]
    if len(numbers) == len(found):
        return float(max(numbers))
    return math.inf if size > NEAR else None


NEAR, DIGITS = 1e-3, 60
"""Sizes below which slopes are computed with so many digits."""

_MATH = [
    {
        "sigmoid": lambda z: 0.5 * (1 + math.tanh(z / 2)),
        "softplus": lambda z: max(z, 0.0) + math.log1p(math.exp(-abs(z))),
        "normal_cdf": lambda z: 0.5 * math.erfc(-z / math.sqrt(2)),
        "sign": lambda z: math.copysign(1.0, z) if z else 0.0,
    },
    "math",
]
