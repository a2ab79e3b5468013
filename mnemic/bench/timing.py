"""Times of functions, taken in turns so that a noisy machine is unfair to none."""

import time
from collections.abc import Callable

ROUNDS = 12
LONGEST = 6.0
"""Seconds for all rounds of a comparison, at least three of them."""


def side_by_side(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the least time of each function in seconds, after one call to warm up."""
    best = {name: _once(function) for name, function in functions.items()}
    best = dict.fromkeys(best, float("inf"))
    began = time.perf_counter()
    for index in range(ROUNDS):
        if index >= 3 and time.perf_counter() - began > LONGEST:
            break
        for name, function in functions.items():
            best[name] = min(best[name], _once(function))
    return best


def _once(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began
