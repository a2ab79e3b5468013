"""The allowed ranges of coefficients, by the place in the spec at which they act."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mnemic.dsl.methods import averages_by
from mnemic.dsl.spec import Spec


@dataclass(frozen=True)
class Range:
    """An interval of real numbers, each end with or without the end itself.

    >>> str(Range(0, 1, open_low=True)), 0 in Range(0, 1, open_low=True), str(Range(0))
    ('in (0, 1]', False, 'at least 0')
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, x: float) -> bool:
        above = self.low < x if self.open_low else self.low <= x
        return above and (x < self.high if self.open_high else x <= self.high)

    def __str__(self) -> str:
        if math.isinf(self.low) and math.isinf(self.high):
            return "a number"
        if math.isinf(self.high):
            return f"{'above' if self.open_low else 'at least'} {self.low:g}"
        if math.isinf(self.low):
            return f"{'below' if self.open_high else 'at most'} {self.high:g}"
        ends = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"in {ends[0]}{self.low:g}, {self.high:g}{ends[1]}"

    def meet(self, other: "Range") -> "Range":
        """Return the numbers that lie in both this range and another.

        >>> str(Range(0).meet(Range(0, 1, open_low=True)))
        'in (0, 1]'
        """
        low, open_low = max((self.low, self.open_low), (other.low, other.open_low))
        high, shut = min((self.high, not self.open_high), (other.high, not other.open_high))
        return Range(low, high, open_low, not shut)


ANY: Final = Range()
SIZE: Final = Range(0)
POSITIVE: Final = Range(0, open_low=True)
DECAY: Final = Range(0, 1, open_low=True)
AVERAGE: Final = Range(0, 1, open_high=True)

RANGES: Final[Mapping[str, Range]] = {
    "optimizer.rate": SIZE,
    "optimizer.momentum": Range(0, 1),
    "optimizer.beta2": AVERAGE,
    "retention.decay": DECAY,
    "retention.row_decay": DECAY,
    "retention.global.l2": SIZE,
    "retention.global.entropy": SIZE,
    "retention.global.elastic.l1": SIZE,
    "retention.global.elastic.l2": SIZE,
    "retention.constraint.scale": POSITIVE,
    "retention.constraint.radius": POSITIVE,
    "bias.delta": POSITIVE,
    "bias.Delta": SIZE,
    "weights.gamma": SIZE,
    "memory.ridge": SIZE,
    "features.a": SIZE,
}


def range_at(spec: Spec, place: str) -> Range:
    """Return the allowed range of a coefficient at a place of the spec."""
    if place == "optimizer.momentum" and averages_by(spec.optimizer.method, "theta"):
        return AVERAGE  # as of other averages: at 1 nothing would ever enter them
    if place == "weights.gamma" and spec.weights.word() == "geometric":
        return DECAY
    if place.startswith("retention.global"):
        return SIZE
    return RANGES.get(place.partition("[")[0], ANY)
