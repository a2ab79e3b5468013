"""Choose a spec's learning rate by successive halving of a small grid, with longer training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

SEED: Final = 900
"""Of a sweep: neither a ranking's (from 0) nor a confirmation's, so that what is chosen here is
judged on seeds that did not choose it."""


@dataclass(frozen=True)
class Heat:
    """The mean skill with one rate after so many steps; -inf where training failed."""

    rate: float
    steps: int
    skill: float


def sweep(
    rates: Sequence[float], steps: int, tried: Callable[[float, int], float]
) -> tuple[float, tuple[Heat, ...]]:
    """Return the best of some learning rates, by successive halving.

    With n rates there are ⌈log₂ n⌉ heats. In the i-th from the end (the last is i = 1) each
    remaining rate is trained for ``steps`` / 2^i steps, and the better half, rounded up, goes on.

    Args:
        rates: at least one.
        steps: the length of the training for which the rate is chosen.
        tried: ``tried(rate, steps)`` returns the mean skill; -inf where training fails.

    Returns:
        The rate (of ties the lowest), and every heat in the order in which it was run.

    >>> sweep([0.1, 0.2, 0.3, 0.4], 100, lambda rate, steps: -abs(rate - 0.3))[0]
    0.3
    """
    left, heats = sorted(rates), list[Heat]()
    rounds = math.ceil(math.log2(len(left)))
    for index in range(rounds, 0, -1):
        length = max(1, steps // 2**index)
        heat = [Heat(rate, length, tried(rate, length)) for rate in left]
        heats += heat
        best = sorted(heat, key=lambda one: -one.skill)[: math.ceil(len(left) / 2)]
        left = sorted(one.rate for one in best)
    return left[0], tuple(heats)
