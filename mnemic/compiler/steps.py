"""Steps that are not plain gradient steps, as an error signal and a rate that make them one.

With prediction y = W′φ and κ = ‖φ‖², the implicit step W = W′ − δ e(Wφ)φᵀ changes the prediction
to the root z of z = y − δκ e(z); a gradient step with the error (y − z)/(δκ) does the same. That
error is s = e(z) itself, the root of s = e(y − δκ s), which has digits where κ or δ vanishes.
Beside a retention that is linear in W the step is solved jointly: see ``Held``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.compiler import refused
from mnemic.compiler import symbols as sym
from mnemic.compiler.convexity import falls
from mnemic.compiler.error_signal import RESIDUAL, ErrorSignal, with_slope
from mnemic.compiler.implicit import PLACE, largest_slope, new_error
from mnemic.compiler.numbers import evaluated, vanishes
from mnemic.compiler.symbolic import simplified

LARGEST_DEGREE = 2
"""Beyond this degree SymPy takes minutes for the roots of an implicit step's stationarity."""

ENDLESS = (sp.oo, -sp.oo, sp.zoo, sp.nan, sp.Limit)
"""What a limit that is no number has in it."""


class Refused(refused.Refused):
    """The step of this loss is not derived; the text says why."""


@dataclass(frozen=True)
class Step:
    """A step written as a gradient step: its error signal, its rate, and how it was found."""

    error: ErrorSignal
    rate: Any
    reason: str


@dataclass(frozen=True)
class Held:
    """The prediction after a joint step with the retention, z = past·y − κ·gain·δ e.

    From W = μ(decay A′ − gain δ e φᵀ), the minimiser of δ ℓ(Wφ) beside a retention whose link is
    μ times the dual, with W′ = μ A′: ``past`` is decay and ``gain`` μ times gain.
    """

    past: Any = sp.Integer(1)
    gain: Any = sp.Integer(1)


def plain(error: ErrorSignal, rate: Any) -> Step:
    """Return the step W = W′ − η e(W′φ) φᵀ."""
    return Step(error, rate, "one gradient step")


def implicit(error: ErrorSignal, rate: Any, held: Held) -> Step:
    """Solve W = argmin δ ℓ(Wφ, v) + D_R(W, W′) + δ P(W), or take its limit for δ → ∞.

    ``held`` is what the retention R and P amounts to, ½‖W − W′‖² by default. In closed form where
    the stationarity is a polynomial of low degree, else by its root.
    """
    delta, closed = _size(error, held), _closed(error, held)
    letter = "η" if rate.has(sym.coefficient("eta")) or error.signal.has(DELTA) else "δ"
    if rate == sp.oo:
        _check_limit(held)
        limit = _nearest(error, held) if closed is None else sp.limit(delta * closed, delta, sp.oo)
        if sp.sympify(limit).has(*ENDLESS):
            raise Refused(
                "the loss has no lowest prediction: it falls without end along ŷ, so an implicit "
                f"step grows with its rate and has no limit for {letter} → ∞: give a finite rate"
            )
        reason = f"the implicit step's limit for {letter} → ∞"
        return Step(with_slope(sp.factor(limit)), sp.Integer(1), reason)
    if closed is not None:
        reason = (
            f"the implicit step's stationarity z = {_new_prediction(letter, held, 'e(z)')}, "
            f"solved for the new prediction z{_factors(held)}"
        )
        return Step(with_slope(closed.subs(delta, rate)), rate, reason)
    reason = (
        f"the error at the new prediction, e = ℓ′({_new_prediction(letter, held, 'e')}): a root "
        "without a closed form, and the only one since the loss is convex; found numerically"
        f"{_factors(held)}"
    )
    return Step(_rooted(error, rate, held), rate, reason)


def _new_prediction(letter: str, held: Held, error: str) -> str:
    """Write past·ŷ − gain·δκ e, without factors of one."""
    past, gain = ("" if x == 1 else name for x, name in ((held.past, "a·"), (held.gain, "b·")))
    return f"{past}ŷ − {gain}{letter}κ {error}"


def _factors(held: Held) -> str:
    """Say what the letters of ``_new_prediction`` are."""
    told = ["a W′"] * (held.past != 1) + ["b times the step"] * (held.gain != 1)
    return f"; the retention leaves {' and '.join(told)}" if told else ""


def _check_limit(held: Held) -> None:
    """Refuse δ → ∞ beside a global term, which would grow with it and leave nothing of W′."""
    if held.past != 1:
        raise Refused(
            "an infinite rate beside a global term makes that term infinite too, which erases "
            "the last memory: give a finite rate, or write the forgetting as retention.decay"
        )


DELTA = sym.coefficient("delta")


def _size(error: ErrorSignal, held: Held) -> Any:
    """Return the rate while a step is solved for: δ, unless the loss or the retention has a δ."""
    taken = any(part.has(DELTA) for part in (error.signal, held.past, held.gain))
    return sp.Symbol("eta_", positive=True) if taken else DELTA


def check_convex(error: ErrorSignal, ranges: Mapping[Any, list[float]]) -> None:
    """Refuse an implicit step of a loss that is not convex, or that couples the coordinates.

    ``ranges`` are the values that coefficients take. Raises ``Refused`` with the place.
    """
    gain = _gain(error)
    if error.uses_norm and gain is None:
        raise Refused(
            "an implicit step of a loss that couples the coordinates, other than as a function of "
            "‖ŷ − v‖ alone, is no equation in one unknown: use gd, or a loss of ŷ − v or ‖ŷ − v‖"
        )
    signal, along = (error.signal, sym.y) if gain is None else (gain * sym.n, sym.n)
    place = falls(signal, along, ranges)
    if place is not None:
        where = f"ŷ = {place[0]:.3g}, v = {place[1]:.3g}"
        where = where if gain is None else f"‖ŷ − v‖ = {place[0]:.3g}"
        raise Refused(
            f"the loss is not convex (its error falls near {where}), so an implicit step may have "
            "several minimisers and jump between them: use gd or momentum, or a convex loss"
        )


def _gain(error: ErrorSignal) -> Any | None:
    """Return g where e = g(n)·(ŷ − v), None for any other error."""
    if not error.uses_norm:
        return None
    gain = sp.cancel(error.signal / RESIDUAL)
    return None if gain.has(sym.y, sym.v) else gain


def _closed(error: ErrorSignal, held: Held) -> Any | None:
    """Return e(z) with z = past·y − gain·δκ e(z), where that has one closed root, else None."""
    if error.uses_norm or error.signal.has(sp.Piecewise, sp.Abs, sp.sign, sp.Max):
        return None
    z, delta = sp.Symbol("z", real=True), _size(error, held)
    size = held.gain * delta * sym.kappa
    equation = z - held.past * sym.y + size * error.signal.subs(sym.y, z)
    numerator = sp.numer(sp.together(equation))
    if not numerator.is_polynomial(z) or sp.degree(numerator, z) > LARGEST_DEGREE:
        return None
    found = [r for r in sp.solve(equation, z) if not r.has(sp.I)]
    if len(found) != 1:
        return None
    return sp.factor(simplified((held.past * sym.y - found[0]) / size))


def _nearest(error: ErrorSignal, held: Held) -> Any:
    """Return (ŷ − u)/κ with u the loss's one minimiser; raise Refused without one."""
    gain = _gain(error)
    if gain is not None:
        return RESIDUAL / (held.gain * sym.kappa)
    lowest = _minimiser(error.signal)
    if lowest is None:
        raise Refused(
            "the limit δ → ∞ of an implicit step goes to the loss's minimiser, which is "
            "missing or has no one closed form here: give a finite rate"
        )
    return (sym.y - lowest) / (held.gain * sym.kappa)


def _minimiser(signal: Any) -> Any | None:
    """Find the one ŷ at which an increasing error changes its sign, else return None."""
    at = [signal.subs(sym.y, sym.v + sp.Rational(side, 10**6)) for side in (-1, 1)]
    before, after = (evaluated(z, dict.fromkeys(z.free_symbols, 0.7)) for z in at)
    if before is not None and after is not None and before < 0 < after:
        return sym.v
    if signal.has(sp.Piecewise, sp.Abs, sp.sign):
        return None
    try:
        found = [r for r in sp.solve(signal, sym.y) if not r.has(sp.I)]
    except NotImplementedError:
        return None
    return found[0] if len(found) == 1 else None


def _rooted(error: ErrorSignal, rate: Any, held: Held) -> ErrorSignal:
    """Return s = e(past·y − gain·δκ s) by coordinate; for a radial loss along the residual, in
    place of n."""
    size, gain = held.gain * rate * sym.kappa, _gain(error)
    known = sp.oo if error.bound is None else error.bound
    steepest = known if known.is_number and known.is_finite else sp.oo
    if gain is not None:
        if held.past != 1:
            raise Refused(
                "an implicit step of a loss of ‖ŷ − v‖ beside a global term depends on how the "
                "term shrinks ŷ, and no longer on ‖ŷ − v‖ alone: use gd, or a loss by coordinate"
            )
        shrunk = new_error(_odd(gain * sym.n), PLACE, sym.n, size, steepest=steepest) / sym.n
        radial = sp.diff(shrunk, sym.n) / sym.n
        return ErrorSignal(shrunk * RESIDUAL, shrunk, radial, largest_slope(shrunk * sym.y))
    moved = error.signal.subs(sym.y, sym.e + sym.v)
    moved = sp.expand(moved) if moved.has(sym.v) else moved
    if moved.has(sym.v):
        signal = new_error(error.signal, sym.y, held.past * sym.y, size, steepest=steepest)
    else:
        reach = RESIDUAL if held.past == 1 else held.past * sym.y - sym.v
        signal = new_error(moved, sym.e, reach, size, steepest=steepest)
    return ErrorSignal(signal, sp.diff(signal, sym.y), sp.Integer(0), largest_slope(signal))


def _odd(slope: Any) -> Any:
    """Continue h′ of n oddly: h′(u) at ``PLACE``, −h′(−u) where u is negative."""
    plain = slope.subs(sym.n, PLACE)
    if not plain.has(sp.Piecewise) and vanishes(plain + plain.subs(PLACE, -PLACE)):
        return plain
    return sp.sign(PLACE) * slope.subs(sym.n, sp.Abs(PLACE))


def flow(error: ErrorSignal, rate: Any, held: Held) -> Step:
    """Return the gradient flow dW/ds = −e(Wφ)φᵀ followed for the time η, exactly."""
    if held != Held():
        raise Refused(
            "the gradient flow is solved for the loss beside ½‖W − W′‖² alone: a retention would "
            "flow with it. Write method: implicit, which is solved jointly with an l2 term, gd, or "
            "the forgetting as retention.decay"
        )
    if error.constant:
        return Step(error, rate, "dz/ds = −κ e with an error that no prediction enters: one step")
    if not error.affine:
        raise Refused(
            "the gradient flow is solved for an error that is affine in ŷ: otherwise dz/ds = −κ "
            "e(z) asks for an integral of 1/e, and its end is no root of e itself. The implicit "
            "step (method: implicit) is derived for any convex loss, and takes no more than one"
        )
    decay = rate * sym.kappa * error.slope
    signal = error.signal * (1 - sp.exp(-decay)) / (sym.kappa * error.slope)
    reason = "dz/ds = −κ e(z), a linear equation, solved for s = η"
    return Step(with_slope(signal), sp.Integer(1), reason)


def normalized(error: ErrorSignal, rate: Any) -> Step:
    """Return the rate divided by 1 + η ℓ″‖φ‖², ℓ″ where the step begins.

    Every step is a contraction where ℓ″ does not fall away from v; how far it is elsewhere,
    `mnemic.compiler.explain.normalised` finds.
    """
    curvature = sp.Abs(error.slope) if not error.slope.is_nonnegative else error.slope
    along = error.slope + error.radial * sym.n**2
    if error.uses_norm:
        curvature = sp.Max(error.slope, simplified(along))
    signal = error.signal / (1 + rate * sym.kappa * curvature)
    radial = sp.diff(signal.subs(sym.y, sym.v + 1), sym.n) / sym.n if error.uses_norm else 0
    return Step(with_slope(signal, sp.sympify(radial)), rate, "the rate over 1 + η ℓ″‖φ‖²")
