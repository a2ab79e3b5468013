"""Times on a GPU of calls that are to be compared: in turns, with a cold cache."""

import statistics
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch

Name = TypeVar("Name", bound=Hashable)
Step = Callable[[], object]
Timer = Callable[[Mapping[int, Step], int], dict[int, float]]
"""Seconds of each of some numbered calls, from so many rounds of all of them."""

COLD = 256 * 1024 * 1024
"""Bytes written between two calls: more than any cache of a device holds."""

WARM = 2
"""Calls before the first that counts."""


def on_device(steps: Mapping[Name, Step], rounds: int) -> dict[Name, float]:
    """Time each call once a round, between events of the GPU; return the medians, in seconds."""
    for step in steps.values():
        for _ in range(WARM):
            step()
    cold = torch.empty(COLD, dtype=torch.int8, device="cuda")
    times: dict[Name, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            cold.zero_()
            times[name].append(_between_events(step))
    return {name: statistics.median(found) for name, found in times.items()}


def _between_events(step: Step) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    step()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1e3
