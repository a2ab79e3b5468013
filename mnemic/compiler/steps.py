"""Steps that are not plain gradient steps, as an error signal and a rate that make them one.

With prediction y = W′φ and κ = ‖φ‖², the implicit step W = W′ − δ e(Wφ)φᵀ changes the prediction
to the root z of z = y − δκ e(z); a gradient step with the error (y − z)/(δκ) does the same.
"""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.error_signal import ErrorSignal, with_slope

LARGEST_DEGREE = 2
"""Of an implicit step's stationarity: beyond it SymPy's roots take minutes and are unreadable."""


class NoClosedForm(Exception):
    """The step has no closed form for this loss."""


@dataclass(frozen=True)
class Step:
    """A gradient step in disguise: its error signal, its rate, and how it was found."""

    error: ErrorSignal
    rate: Any
    reason: str


def plain(error: ErrorSignal, rate: Any) -> Step:
    """W = W′ − η e(W′φ) φᵀ."""
    return Step(error, rate, "one gradient step")


def implicit(error: ErrorSignal, rate: Any) -> Step:
    """W = argmin δ ℓ(Wφ, v) + ½‖W − W′‖², and its limit for δ → ∞."""
    z = sp.Symbol("z", real=True)
    delta = sym.coefficient("delta")
    roots = _roots(z - sym.y + delta * sym.kappa * error.signal.subs(sym.y, z), z, error)
    signal = sp.factor(sp.simplify((sym.y - roots) / (delta * sym.kappa)))
    if rate == sp.oo:
        limit = sp.factor(sp.limit(delta * signal, delta, sp.oo))
        return Step(with_slope(limit), sp.Integer(1), "the implicit step's limit for δ → ∞")
    reason = "the implicit step's stationarity z = y − δκ e(z), solved for the new prediction z"
    return Step(with_slope(signal.subs(delta, rate)), rate, reason)


def _roots(equation: Any, z: Any, error: ErrorSignal) -> Any:
    if error.uses_norm or error.signal.has(sp.Piecewise, sp.Abs, sp.sign, sp.Max):
        raise NoClosedForm("the stationarity of the implicit step is not a smooth scalar equation")
    numerator = sp.numer(sp.together(equation))
    if not numerator.is_polynomial(z) or sp.degree(numerator, z) > LARGEST_DEGREE:
        raise NoClosedForm("the stationarity of the implicit step is no polynomial of low degree")
    found = [r for r in sp.solve(equation, z) if not r.has(sp.I)]
    if len(found) != 1:
        raise NoClosedForm(f"the stationarity of the implicit step has {len(found)} closed roots")
    return found[0]


def flow(error: ErrorSignal, rate: Any) -> Step:
    """The gradient flow dW/ds = −e(Wφ)φᵀ followed for the time η, exactly."""
    if not error.affine or error.constant:
        raise NoClosedForm("the gradient flow is solved for an error that is affine in ŷ")
    decay = rate * sym.kappa * error.slope
    signal = error.signal * (1 - sp.exp(-decay)) / (sym.kappa * error.slope)
    reason = "dz/ds = −κ e(z), a linear equation, solved for s = η"
    return Step(with_slope(signal), sp.Integer(1), reason)


def normalized(error: ErrorSignal, rate: Any) -> Step:
    """The rate divided by 1 + η ℓ″‖φ‖², so that every step is a contraction."""
    curvature = sp.Abs(error.slope) if not error.slope.is_nonnegative else error.slope
    along = error.slope + error.radial * sym.n**2
    if error.uses_norm:
        curvature = sp.Max(error.slope, sp.simplify(along))
    signal = error.signal / (1 + rate * sym.kappa * curvature)
    radial = sp.diff(signal.subs(sym.y, sym.v + 1), sym.n) / sym.n if error.uses_norm else 0
    return Step(with_slope(signal, sp.sympify(radial)), rate, "the rate over 1 + η ℓ″‖φ‖²")
