"""The largest slope of a function of one number, such as a link from dual to memory."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import sympy as sp

from mnemic.compiler.steepness import GROWTH, PLACES, Slopes

DECADES = tuple(10.0 ** (power + 0.1) for power in range(-12, 13))

LINE = tuple(sorted((
    *PLACES,
    *(side * 10.0 ** ((i + 0.3) / 32) for i in range(-128, 128) for side in (1, -1)),
    *(side * size for size in DECADES for side in (1, -1)),
)))  # fmt: skip
"""Arguments at which a function is looked at, none of them a number at which one bends."""

ROUNDING = 1e-12
"""Differences below this share of two values are their rounding."""


def steepest(value: Any, slope: Any, *, inverse: bool = False) -> float | None:
    """Return sup f′ of a function f of ``sym.y`` alone, or of its inverse; ``inf`` where f′ is
    unbounded or f jumps, ``None`` where f′ is undefined or f decreases somewhere.

    Slopes are sampled on a grid that is refined at each of their peaks, which covers both sides of
    a kink. Secants are compared as well, since a narrow peak shows in the rise of f across it.

    >>> from mnemic.compiler.symbols import y
    >>> steepest(y**3, 3 * y**2), round(steepest(y**3 + y, 3 * y**2 + 1, inverse=True), 6)
    (inf, 1.0)
    """
    found = Slopes(value, 1 / slope if inverse else slope, sp.Integer(0))
    sizes = [found.at(place) for place in LINE]
    numbers = [size for size in sizes if size is not None and not math.isnan(size)]
    if len(numbers) < len(sizes):
        return None
    line = Line(found, inverse)
    if line.falls():
        return None
    top = max(*numbers, *(found.climb(*ends) for ends in _peaks(numbers)))
    return math.inf if math.isinf(top) or line.grows(top) else line.rise(top)


def _peaks(sizes: list[float]) -> list[tuple[float, float]]:
    """Return the neighbours of each place of the grid that is a local maximum of the slopes."""
    inner = range(1, len(LINE) - 1)
    rises = {i: (sizes[i] - sizes[i - 1], sizes[i] - sizes[i + 1]) for i in inner}
    tops = (i for i in inner if min(rises[i]) >= 0 and max(rises[i]) > 0)
    return [(LINE[i - 1], LINE[i + 1]) for i in tops]


@dataclass(frozen=True)
class Line:
    """A function, or its inverse, by its slopes and secants."""

    slopes: Slopes
    inverse: bool

    def falls(self) -> bool:
        """Return whether the function falls from one place to the next."""
        values = [self.slopes.value(place) for place in LINE]
        return any(b - a < -ROUNDING * (abs(a) + abs(b)) for a, b in pairwise(values))

    def grows(self, top: float) -> bool:
        """Return whether slopes grow decade by decade towards zero or away from it, on a side."""
        for side in (1, -1):
            sizes = [self._at(side * size) for size in DECADES]
            for end in (sizes[8::-1], sizes[-9:]):
                if end[-1] > ROUNDING * top and all(b > GROWTH * a for a, b in pairwise(end)):
                    return True
        return False

    def rise(self, top: float) -> float:
        """Return ``top``, or a steeper slope that a secant shows; ``inf`` of a jump."""
        steep = [ends for ends in pairwise(LINE) if self._secant(*ends) > GROWTH * top]
        for whole in steep:
            ends = whole
            for _ in range(30):
                middle = sum(ends) / 2
                ends = max(
                    (ends[0], middle), (middle, ends[1]), key=lambda half: self._secant(*half)
                )
                top = max(top, *map(self._at, ends))
            if self._secant(*ends) > GROWTH * top:
                return math.inf
        return top

    def _at(self, place: float) -> float:
        return self.slopes.at(place) or 0.0

    def _secant(self, low: float, high: float) -> float:
        """Return the size of a secant, of the least that rounding leaves open."""
        ends = self.slopes.value(low), self.slopes.value(high)
        if not all(map(math.isfinite, ends)):
            return 0.0
        step, rounding = abs(ends[1] - ends[0]), ROUNDING * sum(map(abs, ends))
        if self.inverse:
            return (high - low) / (step + rounding) if step + rounding else math.inf
        return max(step - rounding, 0.0) / (high - low)
