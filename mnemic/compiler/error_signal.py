"""The error signal e = ∂ℓ/∂ŷ and its slope ∂e/∂ŷ, derived from the loss.

A loss is a sum over coordinates of f(ŷ_i, v_i), or a radial h(n) with n = ‖ŷ − v‖, or a sum of
f with n in its conditions (almost everywhere the gradient of f alone).
"""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.implicit import largest_slope, roots_of
from mnemic.compiler.numbers import vanishes
from mnemic.compiler.steepness import bound
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
    """Return ∂ℓ/∂ŷ of a loss in e, y, v or n; ``smooth`` replaces sign(x) by tanh(a x)."""
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
    """Simplify an expression, unless the simpler form would overflow."""
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

    sign(e) f(|e|) has the same values, but automatic differentiation gives it slope zero at e = 0.
    Where f is steep there, or jumps, or is flat, that form may stay.
    """
    gain = sp.cancel(right / size)
    at_zero = gain.subs(size, 0)
    if at_zero.is_finite and at_zero != 0:
        return sym.e * gain.subs(size, sp.Abs(sym.e))
    return sp.sign(sym.e) * right.subs(size, sp.Abs(sym.e))
