"""Whether a loss is convex in the prediction: its error signal never falls as ŷ grows."""

from collections.abc import Mapping
from itertools import pairwise, product
from types import MappingProxyType
from typing import Any, Final

from mnemic.compiler import symbols as sym
from mnemic.compiler.kinks import beside, kinks
from mnemic.compiler.numbers import sampler
from mnemic.compiler.points import points

SIZES: Final = tuple(10 ** (p / 4) for p in range(-12, 13))
"""Distances from the value, on either side, at which the error is looked at."""

GRID: Final = tuple(i / 8 for i in range(1, 97))
"""More distances, close enough together to see an error that falls between two decades."""

VALUES: Final = (0.0, 1.0, 0.37, -1.6)
MORE: Final = (*VALUES, 2.5, -4.0, 7.0)
LARGEST: Final = 3.0
"""The largest size of a coefficient that is looked at."""
ROUNDING: Final = 1e-12


def falls(
    signal: Any, along: Any = sym.y, ranges: Mapping[Any, list[float]] = MappingProxyType({})
) -> tuple[float, float] | None:
    """Return a place (``along``, v) near which the error falls; ``None`` for a convex loss.

    This is tested in numbers: values of several sizes and both sides of kinks, with coefficients
    at the least, the middle and the largest of their ``ranges``, wherever the error is defined.

    >>> falls(sp.tanh(sym.y - sym.v)) is None
    True
    >>> place = falls(sp.sin(sym.y))
    """
    free = sorted(signal.free_symbols - {along, sym.v}, key=str)
    names = [along, sym.v, *free]
    sample, kinks_at = sampler(signal, names), kinks(signal, names)
    coefficients = [*points([_bounded(ranges.get(s, [1.0])) for s in free])]
    sizes = [-1.0, 1.0] if along == sym.y else [1.0]
    alone = along == sym.y and not signal.subs(sym.y, sym.e + sym.v).has(sym.v)
    for v, c in product(VALUES[:1] if alone else MORE, coefficients):
        offset = v if along == sym.y else 0.0
        places = [offset + side * size for size in (*SIZES, *GRID) for side in sizes]
        near = [z for kink in kinks_at(v, *c) for z in beside(kink)]
        places = sorted({*places, *(z for z in near if along == sym.y or z > 0)})
        found = [(z, sample(z, v, *c)) for z in places]
        seen = [(z, e) for z, e in found if e is not None]
        for (_, before), (z, after) in pairwise(seen):
            if after < before - ROUNDING * (1 + abs(before)):
                return z, v
    return None


def _bounded(values: list[float]) -> list[float]:
    """Clip values to ±``LARGEST``, the largest that is looked at."""
    return [min(max(value, -LARGEST), LARGEST) for value in values]
