"""Processor time of functions that take turns, in a process on one thread.

Other load on the machine is not counted, though it affects caches and clock speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

Run = Callable[[], object]

ROUNDS: Final = 7
LEAST: Final = 3
ENOUGH: Final = 12.0
"""Seconds after which no more than ``LEAST`` rounds are taken."""


def in_turns(runs: Mapping[str, Run]) -> dict[str, float]:
    """Return the least seconds of each, after a call to warm up."""
    best = {name: min(float("inf"), _once(run)) for name, run in runs.items()}
    short = sum(best.values()) < ENOUGH  # where a round is long, the first counts as well
    if short:
        best = dict.fromkeys(best, float("inf"))
    spent = 0.0
    for index in range(ROUNDS if short else LEAST - 1):
        if index >= LEAST and spent > ENOUGH:
            break
        for name, run in runs.items():
            took = _once(run)
            spent, best[name] = spent + took, min(best[name], took)
    return best


def _once(run: Run) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began
