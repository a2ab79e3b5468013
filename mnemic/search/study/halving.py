"""Asynchronous successive halving: decide which points of a rung go on to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

LATEST = 2000

Values = Sequence[float]
"""The objectives of one point at one rung, less is better in each."""


def goes_on(values: Values, others: Sequence[Values], keep: float) -> bool:
    """Return whether a point is in the best share ``keep`` of those that came to the rung so far.

    Points are ordered by how many others dominate them, which for one value is their order.
    Of n points the best max(1, floor(keep n)) go on, and those that tie with them. If there are
    very many, only the latest ones are compared.

    >>> [goes_on([x], [[1.0], [2.0], [4.0]], 0.5) for x in (0.5, 1.5, 3.0)]
    [True, True, False]
    """
    everyone = torch.tensor([*others[-LATEST:], values], dtype=torch.float64)
    places = max(1, math.floor(keep * len(everyone)))
    no_worse = (everyone[:, None] <= everyone).all(-1)
    better = (everyone[:, None] < everyone).any(-1)
    beaten_by = (no_worse & better).sum(0)
    mine = int(beaten_by[-1])
    return mine == 0 or int((beaten_by < mine).sum()) < places


def dominates(one: Values, other: Values) -> bool:
    """Return whether ``one`` is no worse in any value and better in one; NaN is never better."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
