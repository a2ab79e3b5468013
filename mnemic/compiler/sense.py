"""Check that a spec states a problem: finite expressions, and a real, non-constant loss."""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final

import mpmath  # type: ignore[import-untyped]
import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.convexity import SIZES, VALUES
from mnemic.compiler.dependence import constants, numberless
from mnemic.compiler.error_signal import RESIDUAL, ErrorSignal
from mnemic.compiler.indices import places_of
from mnemic.compiler.numbers import sampler, spelled, vanishes
from mnemic.compiler.points import points
from mnemic.compiler.problem import Problem
from mnemic.compiler.ranges import ranges_of
from mnemic.compiler.rule import Rule, starts_at_zero
from mnemic.dsl.ranges import SIZE, range_at
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, Issue

ROUNDING: Final = 1e-12
EVERY: Final = 150
"""Points up to which a coefficient is looked at in all of them: two arguments have fewer."""
BLOWN_UP: Final = 1e3
"""The size from which a value 10⁻⁴ from zero tells an infinity there."""
FINITE: Final = ("expressions that are finite and real",)


def check(problem: Problem, error: ErrorSignal) -> None:
    """Raise ``InvalidSpec`` for infinite expressions, for losses that are constant or not real,
    and for coefficients that fall below the range in which their expressions are defined."""
    found = [*_infinite(problem)] or [
        *_of_loss(problem, error), *constants(problem), *numberless(problem), *_of_start(problem),
        *outside(problem),
    ]  # fmt: skip
    if found:
        raise InvalidSpec(found)


def _infinite(problem: Problem) -> Iterator[Issue]:
    """Expressions that came to an infinity, 0/0 or an imaginary number, as 1/(e − e) does."""
    own = dict(_placed(problem.spec))
    places = {
        own["loss"]: problem.loss,
        "retention.local.bregman": problem.generator,
        "retention.local.f-divergence": problem.divergence,
        "retention.global": problem.penalty,
        "retention.link": problem.link,
        "features.expr": problem.features,
        "memory": problem.similarity,
        **{f"keys.{role}": expr for role, expr in problem.keys.items()},
        **{own.get(s.name, s.name): s.expr for s in problem.scalars if not s.declared.fixed},
    }
    for where, expr in places.items():
        if expr is not None and sp.sympify(expr).has(sp.zoo, sp.nan, sp.I):
            yield Issue("comes to an infinite or complex number", where, str(expr), FINITE)


def _of_start(problem: Problem) -> Iterator[Issue]:
    """Yield an issue where a stated link is no number at a dual of zero."""
    stated = problem.spec.retention.link
    if stated is None:
        return
    at_zero = undefined(problem.link, sym.a)
    if at_zero is not None:
        reason = f"is no number at a = 0, where memories begin ({at_zero})"
        hint = "write it without dividing by a, or as a function that has a value there"
        yield Issue(reason, "retention.link", stated.expr, hint=hint)


def check_first_step(rule: Rule) -> None:
    """Raise ``InvalidSpec`` where the first step of a memory that starts at zero is no number.

    Its prediction is ŷ = 0, and so the step is e(0, v), the slope of the loss there: of y − v log y
    it is 1 − v/0.
    """
    if not starts_at_zero(rule) or rule.error.constant:
        return
    if undefined(rule.error.signal.subs(sym.e, RESIDUAL), sym.y) is not None:
        where, text = dict(_placed(rule.problem.spec))["loss"], rule.problem.spec.bias.text
        reason = "the loss has no slope at ŷ = 0, which a memory that begins at zero predicts"
        hint = (
            "write the loss in a function of ŷ that has a slope everywhere, such as log(1 + exp(y))"
        )
        raise InvalidSpec((Issue(reason, where, text, hint=hint),))


def undefined(expr: Any, symbol: Any) -> str | None:
    """Say in words what an expression is at zero if it is undefined there; else ``None``.

    >>> undefined(sp.sin(sym.x) / sym.x, sym.x), undefined(1 / sym.x, sym.x)
    ('0/0, with the limit 1', 'infinite')
    >>> undefined(sp.log(sp.Abs(sym.x)), sym.x), undefined(sp.exp(sym.x), sym.x)
    ('infinite', None)
    """
    if not sp.sympify(expr).subs(symbol, 0).has(sp.zoo, sp.nan, sp.oo, -sp.oo):
        return None
    free = sorted(expr.free_symbols - {symbol}, key=str)
    near = sampler(expr, [symbol, *free])
    found = [near(x, *[0.7] * len(free)) for x in (1e-4, 1e-6, -1e-6)]
    values = [x for x in found if x is not None and abs(x) < BLOWN_UP]
    if len(values) < len(found) or not _alike(values[0], values[1]):
        return "infinite"
    same = _alike(values[1], values[2])
    return f"0/0, with the limit {round(values[1], 3) + 0.0:g}" if same else "0/0, and a jump"


def endless(expr: Any, symbol: Any) -> bool:
    """Return whether an expression grows without bound towards zero, from either side.

    >>> endless(1 / sp.sqrt(sp.Max(sym.x, 0)), sym.x), endless(sp.sqrt(sp.Abs(sym.x)), sym.x)
    (True, False)
    """
    free = sorted(expr.free_symbols - {symbol}, key=str)
    near = sampler(expr, [symbol, *free])
    for side in (1, -1):
        far, close = (near(side * x, *[0.7] * len(free)) for x in (1e-6, 1e-12))
        if far is not None and (close is None or abs(close) > 1.5 * abs(far) + 1):
            return True
    return False


def _alike(x: float, y: float) -> bool:
    return abs(x - y) < 1e-3 * (1 + abs(x))


def outside(problem: Problem) -> Iterator[Issue]:
    """Yield an issue for each coefficient whose activation or expression falls below its range.

    Below it a decay has no logarithm, and scales, radii, thresholds and coefficients named as sizes
    are no sizes. A rate below 0 or a decay above 1 only makes the memory grow, and is reported with
    the stability of the rule. The check is numerical: arguments at all of the values that they are
    sampled at, or, of many together, at the least, the middle and the largest.
    """
    values = places_of(problem)
    for scalar in problem.scalars:
        allowed = range_at(problem.spec, scalar.place)
        own = scalar.place.startswith("coefficients.") and scalar.symbol.is_positive
        allowed = SIZE if own and scalar.argument else allowed
        found = [*_values_of(scalar.expr, values)] or [allowed.low + 1]
        least, below = min(found), allowed.low - ROUNDING
        never = allowed.open_low and max(found) <= allowed.low
        if never or ((allowed.open_low or own) and least < below):
            text = scalar.declared.expr or scalar.declared.activation or scalar.name
            reason = f"comes to {least:.3g} for {'all' if never else 'some'} values"
            reason += f", and must be {allowed}"
            hint = OWN_SIZE if own else None
            yield Issue(reason, scalar.place, text, hint=hint)


OWN_SIZE: Final = "give it another name: coefficients of this name are never negative"


def _values_of(expr: Any, values: Mapping[Any, list[float]]) -> Iterator[float]:
    free = sorted(expr.free_symbols, key=str)
    function = sampler(expr, free)
    taken = [values.get(s) or [1.0] for s in free]
    every = math.prod(map(len, taken)) <= EVERY
    found = (function(*point) for point in (product(*taken) if every else points(taken)))
    return (x for x in found if x is not None)


def _placed(spec: Spec) -> Iterator[tuple[str, str]]:
    yield "loss", "bias.expr" if hasattr(spec.bias, "expr") else "bias"
    for name, where, _ in spec.placed_coefficients():
        yield name, where


def _of_loss(problem: Problem, error: ErrorSignal) -> Iterator[Issue]:
    where, text = dict(_placed(problem.spec))["loss"], problem.spec.bias.text
    if vanishes(error.signal):
        reason = "the loss does not change with the prediction, so the memory would never learn"
        yield Issue(reason, where, text, ("losses whose gradient in the prediction ŷ is not zero",))
        return
    if problem.loss.has(sym.y, sym.v):
        return
    place = unreal(problem.loss, ranges_of(problem.scalars))
    if place is not None:
        distance = "‖ŷ − v‖" if problem.loss.has(sym.n) else "ŷ − v"
        reason = f"the loss is not real everywhere: not where {distance} = {place:.3g}"
        hint = "write abs(e) or e**2 for e under a root, a logarithm or a fractional power"
        yield Issue(reason, where, text, ("losses that are real numbers",), hint=hint)


def unreal(loss: Any, ranges: Mapping[Any, list[float]], v: float = 0.0) -> float | None:
    """Return the e, n or y of least size at which a loss is not a real number; None without one.

    It is sampled, with coefficients at the least, the middle and the largest of their values.
    """
    along = next(s for s in (sym.n, sym.y, sym.e) if loss.has(s) or s == sym.e)
    shown = spelled(loss).subs(sym.v, v)
    if shown.has(sp.zoo, sp.nan):
        return float(SIZES[0])
    free = sorted(shown.free_symbols - {along}, key=str)
    function = sp.lambdify([along, *free], shown, [{"round": mpmath.nint}, "mpmath"])
    sides = (1,) if along == sym.n else (-1, 1)
    coefficients = [*points([ranges.get(s, [1.0]) for s in free])]
    for size, side in product(SIZES, sides):
        if any(_complex(function, (side * size, *c)) for c in coefficients):
            return side * size
    return None


def unreal_of_value(problem: Problem) -> tuple[float, float] | None:
    """Return a (ŷ, v) at which a loss of ŷ and v is not real, if each sampled v has such a ŷ.

    Else return None: a loss that is real for all ŷ at some v is meant for such values v.
    """
    if not problem.loss.has(sym.y, sym.v):
        return None
    loss, ranges = problem.loss.subs(sym.e, sym.y - sym.v), ranges_of(problem.scalars)
    places = [(unreal(loss, ranges, v), v) for v in VALUES]
    known = [(y, v) for y, v in places if y is not None]
    return known[0] if len(known) == len(places) else None


def _complex(function: Any, at: Iterable[float]) -> bool:
    try:
        value = mpmath.mpmathify(function(*map(mpmath.mpf, at)))
    except (ZeroDivisionError, ValueError, OverflowError, TypeError):
        return False
    return bool(abs(mpmath.im(value)) > ROUNDING * (1 + abs(mpmath.re(value))))
