"""The terms of the bound on a step: its size along a repeating key, and the room for it.

Along a key that repeats, with x = η Σγ sup ℓ″ ‖φ‖² (and the retention's gain), decay a, seen part
s and momentum θ, the state (A, S) has trace a − s·x + θ and determinant aθ. Both eigenvalues lie
inside the unit circle while s·x < (1 + a)(1 + θ): 2 without decay and momentum, 2(1 + θ) with it.
Under an anchor of b tokens b steps are taken before one is seen: b·x (the decays between them left
out, which errs on the safe side) < 1 + a^b.
"""

import math
from typing import Any

import sympy as sp

from mnemic.compiler import steepness
from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.key_sizes import product_symbol
from mnemic.compiler.explain.spans import INFINITE, ranges
from mnemic.compiler.implicit import roots_of
from mnemic.compiler.indices import places_of
from mnemic.compiler.jumps import jump
from mnemic.compiler.numbers import evaluated
from mnemic.compiler.points import points
from mnemic.compiler.rule import Rule
from mnemic.compiler.steepest import steepest
from mnemic.compiler.steepness import GROWTH
from mnemic.compiler.symbolic import simplified, tidy

SUPREMUM = sp.Symbol("sup ℓ″", positive=True)
"""sup ℓ″ where it depends on coefficients."""
STEEP = 1e3
"""From this ℓ″ at a tiny error on it is taken to have no bound there."""


def step_size(rule: Rule, curvature: Any) -> Any:
    """Return η Σγ ℓ″ ‖φ‖², the retention's gain and the seen part included."""
    gates = sp.Integer(1)
    if rule.window > 1:
        gates = rule.window * (1 if rule.gamma is None else sym.coefficient("gamma"))
    found = still(rule) * seen(rule) * rule.gain * rule.rate * gates * curvature * sym.kappa
    found = found.subs(sym.kappa, product_symbol(rule))
    return sp.nsimplify(simplified(found.subs(_table(rule), simultaneous=True)))


def plain_step(rule: Rule) -> Any:
    """Return η‖φ‖², with η written in the arguments of the rule."""
    found = sp.sympify(rule.rate * sym.kappa).subs(sym.kappa, product_symbol(rule))
    return sp.nsimplify(simplified(found.subs(_table(rule), simultaneous=True)))


def still(rule: Rule) -> int:
    """Return for how many tokens the gradient sees an unchanged matrix, by anchor or interval."""
    return max(rule.anchor, *(matrix.every for matrix in rule.network.matrices), 1)


def limit(rule: Rule) -> Any:
    """Return (1 + a)(1 + θ), for the trace of the state's transition; a^b under an anchor of b
    tokens."""
    if still(rule) > 1:
        return 1 + decay(rule) ** still(rule)
    return sp.factor((1 + decay(rule)) * (1 + momentum(rule)))


def floor(rule: Rule) -> Any:
    """Return −(1 − a)(1 − θ), below which an eigenvalue passes 1; a^b − 1 under an anchor of b."""
    if still(rule) > 1:
        return decay(rule) ** still(rule) - 1
    return -(1 - decay(rule)) * (1 - momentum(rule))


def decay(rule: Rule) -> Any:
    """Return a, the factor by which a step decays the memory."""
    return sp.sympify(rule.decay * rule.row_decay).subs(_table(rule), simultaneous=True)


def seen(rule: Rule) -> Any:
    """Return s, the decay of the memory at which the gradient is taken, rows included."""
    before = rule.problem.spec.retention.order == "before"
    return rule.seen * rule.row_decay if before else rule.seen


def momentum(rule: Rule) -> Any:
    """Return θ if momentum averages the gradient, else 0."""
    if rule.momentum is None or rule.momentum_on != "gradient":
        return sp.Integer(0)
    return rule.momentum


def _table(rule: Rule) -> dict[Any, Any]:
    return {s.symbol: s.expr for s in rule.scalars}


def curvature(rule: Rule) -> tuple[Any | None, list[float]]:
    """Return sup ℓ″: a number or an expression, or ``SUPREMUM`` and the values that it takes.

    ``oo`` where it is unbounded, ``None`` where it could not be found.
    """
    error, spans = rule.error, ranges(rule)
    flat = not error.slope.has(sym.y, sym.n, sym.v) or bool(roots_of(error.signal))
    if flat and error.bound != sp.oo:
        return error.bound, []  # an expression of coefficients
    read = error.signal.free_symbols | error.slope.free_symbols | error.radial.free_symbols
    names = sorted(read & spans.keys(), key=str)
    found = []
    for point in points([_near_zero(spans[s]) for s in names]):
        at = dict(zip(names, map(sp.Float, point), strict=True))
        parts = (part.subs(at) for part in (error.signal, error.slope, error.radial))
        found.append(steepness.bound(*parts))
    if None in found or sp.oo in found:
        return (None if None in found else sp.oo), []
    values = [float(z) for z in found if z is not None]
    if max(values) - min(values) <= 1e-5:
        return sp.nsimplify(round(max(values), 4), rational=True), []
    return SUPREMUM, values


def _near_zero(values: list[float]) -> list[float]:
    """Pick three values of an activation near zero, where coefficients start."""
    middle = sorted(values)[1:-1] or values
    return [middle[len(middle) // 4], middle[len(middle) // 2], middle[-len(middle) // 4]]


def far_curvature(rule: Rule) -> Any | None:
    """Return ℓ″ for large errors, where it is unbounded only at ŷ = v; ``None`` if it grows."""
    near, far = (slope_at(rule, size) for size in (1e3, 1e6))
    if near is None or far is None or not math.isfinite(far) or far > 2 * near + 1:
        return None
    return sp.nsimplify(round(far, 4), rational=True)


def grows_with_value(rule: Rule) -> bool:
    """Return whether ℓ″ grows without end as the value v does, coefficients at one."""
    return not roots_of(rule.error.signal) and _slopes(rule).grows_with_value


def largest_value(rule: Rule, allowed: float) -> float | None:
    """Return the size of v up to which ℓ″, which grows with v, stays under ``allowed``, or None."""
    found = _slopes(rule)

    def under(size: float) -> bool:
        return max(found.peak(size), found.peak(-size)) < allowed

    low, high = 1e-3, 1e4
    if not under(low) or under(high):
        return None
    for _ in range(20):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if under(middle) else (low, middle)
    return low


def _slopes(rule: Rule) -> steepness.Slopes:
    return steepness.Slopes(rule.error.signal, rule.error.slope, rule.error.radial)


def jump_away(rule: Rule) -> Any | None:
    """Return the ŷ at which the error signal jumps for v = 0, if not at ŷ = v; else ``None``.

    ``None`` also for a loss of ‖ŷ − v‖, and for one whose ℓ″ grows towards ŷ = v.
    """
    signal, close = rule.error.signal.subs(sym.v, 0), sp.Rational(1, 10**9)
    small = slope_at(rule, float(close))
    if signal.has(sym.n) or small is None or not abs(small) < STEEP:
        return None
    if jump(signal, sym.y, (-close, close)) is not None:
        return None
    above = jump(signal, sym.y, (sp.S.Zero, sp.oo))
    return jump(signal, sym.y, (-sp.oo, sp.S.Zero)) if above is None else above


def slope_at(rule: Rule, size: float) -> float | None:
    """Return ℓ″ along an error of the given size, with all coefficients at one."""
    slope = (rule.error.slope + rule.error.radial * sym.n**2).subs(sym.v, 0)
    free = slope.free_symbols - {sym.y, sym.n}
    return evaluated(slope, {**dict.fromkeys(free, 1), sym.y: size, sym.n: size})


def largest_error(rule: Rule, allowed: float) -> float | None:
    """Return the error up to which a growing ℓ″ stays under ``allowed``, ``None`` if none does."""
    low, high = 1e-9, 1e9
    if not _under(rule, low, allowed) or _under(rule, high, allowed):
        return None
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _under(rule, middle, allowed) else (low, middle)
    return low


def _under(rule: Rule, size: float, allowed: float) -> bool:
    found = slope_at(rule, size)
    return found is not None and found < allowed


def steepest_link(rule: Rule) -> Any | None:
    """Return sup f′ of the link f from the state to the memory (from ∇R of the state, where the
    state is the memory itself); None where f′ is unbounded or f decreases, couples entries or
    multiplies them.

    Coefficients take the values of their ranges. Where a step also solves the retention's global
    term, as a proximal step does, this only brings two memories nearer to each other in ∇R.
    """
    kept, link = rule.retained, rule.retained.link
    if link.normaliser != "none" or kept.mode == "multiplicative":
        return None
    inverse = kept.mode == "prox" or link.expr is None
    if inverse and link.domain != (-sp.oo, sp.oo):
        return None
    value: Any = kept.mirror if kept.mode == "prox" else link.slope if inverse else link.expr
    value = value.subs(_table(rule), simultaneous=True)
    along = sym.w if inverse else sym.a
    slope = tidy(sp.diff(value, along))
    if not slope.has(along) and not value.has(sp.sign):
        return sp.nsimplify(1 / slope if inverse else slope, rational=True)
    most = _over_ranges(rule, value.subs(along, sym.y), slope.subs(along, sym.y), inverse)
    return None if most is None else sp.nsimplify(_rounded_up(most), rational=True)


def _over_ranges(rule: Rule, value: Any, slope: Any, inverse: bool) -> float | None:
    """Return the steepest slope over the ranges of coefficients, None where it has no end."""
    spans = places_of(rule.problem)
    names = sorted(value.free_symbols - {sym.y}, key=str)
    if any(name not in spans for name in names):
        return None
    within, beyond = 0.0, 0.0
    for point in points([spans[name] for name in names]):
        at = dict(zip(names, map(sp.Float, point), strict=True))
        found = steepest(value.subs(at), slope.subs(at), inverse=inverse)
        if found is None or math.isinf(found):
            return None
        endless = any(abs(z) >= INFINITE for z in point)
        within, beyond = max(within, 0 if endless else found), max(beyond, found)
    return beyond if beyond <= GROWTH * within else None


def _rounded_up(value: float) -> str:
    """Write a number in four digits, no smaller than it is but by the rounding of a search.

    >>> _rounded_up(0.999999999), _rounded_up(0.42101)
    ('1', '0.4211')
    """
    if value == 0:
        return "0"
    scale = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(value / scale - 1e-3) * scale:.4g}"
