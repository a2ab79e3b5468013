"""The sign of ℓ″, and losses that fall as the prediction leaves its value.

A step along a key changes ŷ − ŷ* of two memories by 1 − ηκℓ″, which is under one in size only where
ℓ″ > 0. Where the loss falls as ŷ leaves v, a step takes the prediction from its value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import Any, Final

from mnemic.compiler import error_signal
from mnemic.compiler import symbols as sym
from mnemic.compiler.convexity import SIZES, VALUES
from mnemic.compiler.error_signal import RESIDUAL, ErrorSignal
from mnemic.compiler.explain.spans import ranges
from mnemic.compiler.implicit import roots_of
from mnemic.compiler.numbers import sampler
from mnemic.compiler.points import points
from mnemic.compiler.rule import Rule

ROUNDING: Final = 1e-9

Sample = Callable[..., float | None]


@dataclass(frozen=True)
class Signs:
    """What the signs of ℓ″ and e show.

    ``lowest`` is the least ℓ″ that was seen, 0 for a convex loss. ``climbs`` says that steps move
    the prediction away from its value: everywhere, or only near ŷ − v = ``away`` if that is given.
    For a loss of ŷ and v without a minimum at ŷ = v, ``concave`` says that ℓ″ is never positive.
    """

    lowest: float = 0.0
    climbs: bool = False
    away: float | None = None
    concave: bool = False


CONVEX: Final = Signs()


def signs(rule: Rule) -> Signs:
    """Return the signs of ℓ″ and of e, found by sampling."""
    error = rule.error
    if error.constant or roots_of(error.signal) or rule.problem.spec.optimizer.method == "implicit":
        return CONVEX  # an implicit step is derived for a convex loss only
    if rule.problem.spec.optimizer.rate.normalized:
        smooth = getattr(rule.problem.spec.bias, "smooth", None)
        error = error_signal.derive(rule.problem.loss, smooth)
    spans = ranges(rule)
    free = sorted((error.signal.free_symbols | error.radial.free_symbols) & spans.keys(), key=str)
    look = _looked_at(error, free)
    found = [look(c) for c in points([_near_zero(spans[s]) for s in free])]
    return min(found, key=lambda s: (not s.climbs, s.lowest))


def _near_zero(values: list[float]) -> list[float]:
    """Pick two values of an activation near zero, where coefficients start."""
    inside = sorted(values)[1:-1] or values
    return [inside[len(inside) // 4], inside[-len(inside) // 4]]


def _looked_at(error: ErrorSignal, free: list[Any]) -> Callable[[tuple[float, ...]], Signs]:
    """Return the signs of ℓ″ and of e as a function of the coefficients ``free``."""
    along = sym.n if error.uses_norm and not error.slope.has(sym.y, sym.v) else sym.y
    parts = (error.signal, error.slope, error.slope + error.radial * sym.n**2)
    if along == sym.n:  # a radial loss: e along the residual, ℓ″ across it and along it
        parts = ((error.signal / RESIDUAL).cancel() * sym.n, *parts[1:])
    if along == sym.y:
        parts = tuple(part.subs(sym.n, abs(RESIDUAL)) for part in parts)
    names = [along, sym.v] if along == sym.y else [along]
    at = tuple(sampler(part, [*free, *names]) for part in parts)
    of_residual = error.signal.subs(sym.y, sym.e + sym.v).expand()
    residual = along == sym.n or not of_residual.has(sym.v)

    def look(coefficients: tuple[float, ...]) -> Signs:
        placed = tuple(partial(part, *coefficients) for part in at)
        return _of_residual(placed, along) if residual else _of_values(placed)

    return look


def _of_residual(at: tuple[Sample, ...], along: Any) -> Signs:
    """Find the signs of a loss of ŷ − v: along one coordinate on either side, or the norm."""
    lowest, away, towards = 0.0, [], 0
    for size, side in product(SIZES, (1,) if along == sym.n else (-1, 1)):
        place = side * size
        e, *slopes = (part(place, *([0.0] if along == sym.y else [])) for part in at)
        least = min((s for s in slopes if s is not None), default=0.0)
        lowest = min(lowest, least)
        if e is None or e == 0:
            continue
        falls = e * side < 0 and (least < -ROUNDING or size == SIZES[-1])
        away += [place] if falls else []
        towards += e * side > 0
    if lowest >= -ROUNDING:
        return CONVEX
    return Signs(lowest, bool(away), min(away, key=abs) if away and towards else None)


def _of_values(at: tuple[Sample, ...]) -> Signs:
    """Find the signs of a loss of ŷ and v: whether its error falls everywhere."""
    lowest, rises = 0.0, False
    for v in VALUES:
        places = sorted(v + side * size for size in SIZES for side in (-1, 1))
        slopes = [s for part in at[1:] for s in (part(y, v) for y in places) if s is not None]
        lowest = min([lowest, *slopes])
        errors = [e for e in (at[0](y, v) for y in places) if e is not None]
        rises |= any(b > a + ROUNDING for a, b in pairwise(errors))
    if lowest >= -ROUNDING:
        return CONVEX
    return Signs(lowest, climbs=not rises, concave=not rises)
