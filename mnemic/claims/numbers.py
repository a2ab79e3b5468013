"""Means with their intervals over seeds, and numbers in words."""

import math
from collections.abc import Sequence

from scipy.stats import t as student


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)


def spread(values: Sequence[float]) -> float:
    """Return half of the 95 % interval of the mean by Student's t; infinite of one value."""
    count = len(values)
    if count < 2:
        return math.inf
    centre = mean(values)
    variance = sum((x - centre) ** 2 for x in values) / (count - 1)
    return float(student.ppf(0.975, count - 1)) * math.sqrt(variance / count)


def shown(values: Sequence[float], digits: int = 3) -> str:
    """Return a mean and its interval in words.

    >>> shown([1.0, 1.0, 1.0])
    '1 ± 0'
    """
    half = spread(values)
    told = f"{mean(values):.{digits}g}"
    return told if math.isinf(half) else f"{told} ± {half:.2g}"
