"""Times of training steps, which are comparable only on one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from mnemic.models.device import CPU
from mnemic.search.study.scores import device_of
from mnemic.search.study.training import Run

NONE: Final = "–"
"""What stands in a table where there is no time."""


class Trained(Protocol):
    """Anything that has training runs."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every run, with the device on which it was timed."""


P = TypeVar("P", bound=Trained)


def timed(points: Sequence[P]) -> list[P]:
    """Return the points that were timed on the device on which most were."""
    counted = Counter(device for p in points if (device := device_of(p.runs)) is not None)
    most = max(counted, key=counted.__getitem__, default=None)
    return [p for p in points if most is not None and device_of(p.runs) == most]


def untimed(points: Sequence[Trained]) -> str:
    """Say how many points `timed` leaves out; empty where it leaves out none."""
    left = len(points) - len(timed(points))
    if not left:
        return ""
    return f"{left} points were timed on another device, or several: they are on no front of time."


def step_time(runs: Sequence[Run]) -> str:
    """Return milliseconds per step, with the device unless it is a CPU; nothing for several."""
    device = device_of(runs)
    if device is None:
        return NONE
    step = 1e3 * sum(run.step_seconds for run in runs) / len(runs)
    return f"{step:.1f}" + ("" if device == CPU else f" ({device})")
