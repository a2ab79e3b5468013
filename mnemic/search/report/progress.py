"""How far a search has come: trials by their ends, the rate, the time left, the best so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from optuna.trial import TrialState

from mnemic.search.report.ranking import ranked
from mnemic.search.report.write import ends
from mnemic.search.space.space import Space
from mnemic.search.study.records import Record, replaced
from mnemic.search.study.scores import Interval

SHOWN: Final = 5
"""How many of the best points are told."""
HOUR: Final = 3600.0


@dataclass(frozen=True)
class Standing:
    """The progress of a search.

    Args:
        counted: finished trials of all workers that count towards ``wanted``.
        wanted: the total number of trials.
        running: the number of trials in progress.
        ends: the number of trials by how they ended.
        best: names and skills of the best points that reached the last rung.
    """

    counted: int
    wanted: int
    running: int
    ends: dict[str, int]
    best: tuple[tuple[str, Interval], ...]

    def rate(self, since: Standing, seconds: float) -> float:
        """Return the trials per hour of all workers since an earlier standing."""
        return HOUR * (self.counted - since.counted) / seconds if seconds > 0 else 0.0

    def left(self, since: Standing, seconds: float) -> float:
        """Return the seconds for the remaining trials at that rate; infinite without a rate."""
        rate = self.rate(since, seconds)
        return HOUR * max(0, self.wanted - self.counted) / rate if rate else math.inf


def standing(space: Space, records: Sequence[Record]) -> Standing:
    """Return the progress of a search, given its trials."""
    going = [one for one in records if one.state is TrialState.RUNNING]
    over, gone = [one for one in records if one.state.is_finished()], replaced(records)
    return Standing(
        counted=sum(one.counts for one in over if one.number not in gone),
        wanted=space.settings.trials,
        running=len(going),
        ends=ends(over),
        best=tuple((p.start or p.spec.name, p.skill) for p in ranked(space, records)[:SHOWN]),
    )


def duration(seconds: float) -> str:
    """Return a time in readable units.

    >>> duration(42), duration(754), duration(9000), duration(math.inf)
    ('42 s', '12 min', '2 h 30 min', 'unknown')
    """
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(int(seconds // 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
