"""The values that coefficients take, as spans."""

from typing import Any

from mnemic.compiler.ranges import ranges_of
from mnemic.compiler.rule import Rule

INFINITE = 29.9
"""From here on a value at the grid's end counts as growing without end."""


def ranges(rule: Rule) -> dict[Any, list[float]]:
    """Return the values that each argument takes under its activation, or the layer's own."""
    return ranges_of(rule.scalars)


def span(values: list[float]) -> str:
    """Return the range that values span, as an open interval.

    >>> span([0.0, 0.5, 2.0])
    '(0, 2)'
    """
    if not values:
        return "any"
    low, high = min(values), max(values)
    left = "-∞" if low <= -INFINITE else f"{round(low, 6):g}"
    right = "∞" if high >= INFINITE else f"{round(high, 6):g}"
    return f"({left}, {right})".replace("-", "−")
