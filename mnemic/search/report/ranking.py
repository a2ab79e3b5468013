"""The ranked points of a search, the Pareto front, and whether the first is a clear winner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec
from mnemic.search.space.settings import COSTS
from mnemic.search.space.space import Space
from mnemic.search.study.halving import dominates
from mnemic.search.study.records import FINISHED, LOOK, SPEC, START, Record, distinct
from mnemic.search.study.scores import Interval, above, by_seed, by_task, interval, measured
from mnemic.search.study.training import Run


@dataclass(frozen=True)
class Ranked:
    """A point that reached the last rung.

    Args:
        record: its trial.
        spec: the point's spec.
        skill: the mean skill over tasks, with an interval over seeds.
        tasks: the skill on each task, with an interval over seeds.
        measured: every objective and cost.
        runs: the runs of the last rung.
        start: the name of the starting spec that this point is, if it is one.
    """

    record: Record
    spec: Spec
    skill: Interval
    tasks: dict[str, Interval]
    measured: dict[str, float]
    runs: tuple[Run, ...]
    start: str | None

    @property
    def look(self) -> dict[str, Any]:
        """What is known about the point without training."""
        return dict(self.record.attributes[LOOK])


def ranked(space: Space, records: Sequence[Record]) -> list[Ranked]:
    """Return the points that finished, best mean skill first."""
    last = len(space.settings.rungs) - 1
    done = [one for one in distinct(records) if one.kind == FINISHED]
    names = _starts(records)
    found = [_ranked(one, last, names) for one in done]
    return sorted(found, key=lambda one: -one.skill.mean)


def _starts(records: Sequence[Record]) -> dict[str, str]:
    """Return, by rule, the name of the starting spec that has it."""
    return {
        str(one.identity): str(one.attributes[START])
        for one in records
        if one.identity is not None and START in one.attributes
    }


def _ranked(one: Record, last: int, names: dict[str, str]) -> Ranked:
    runs = one.runs(last)
    seen = one.attributes[LOOK]
    return Ranked(
        record=one,
        spec=load(one.attributes[SPEC]),
        skill=interval(by_seed(runs)),
        tasks={task: interval(skills) for task, skills in by_task(runs).items()},
        measured=measured(runs, seen),
        runs=tuple(runs),
        start=names.get(str(one.identity)),
    )


def front(points: Sequence[Ranked], objectives: Sequence[str]) -> list[Ranked]:
    """Return the points that no other point dominates in the objectives."""

    def losses(one: Ranked) -> list[float]:
        return [one.measured[n] if n in COSTS else -one.measured[n] for n in objectives]

    values = [losses(one) for one in points]
    return [
        one
        for one, mine in zip(points, values, strict=True)
        if not any(dominates(other, mine) for other in values)
    ]


def verdict(points: Sequence[tuple[str, Interval]], confidence: float = 0.95) -> str:
    """Say whether the best is a winner: significantly above each of the others.

    The second in order is not always the hardest to beat: the best may not be significantly above
    one with a lower mean that varies more over seeds.

    >>> verdict([("a", interval([0.9, 0.91, 0.92])), ("b", interval([0.1, 0.11, 0.12]))])
    'a wins: 0.910 ± 0.025 against 0.110 ± 0.025 of b, apart with 95 % confidence'
    """
    if not points:
        return "no point reached the last rung"
    best, *rest = sorted(points, key=lambda pair: -pair[1].mean)
    if not rest:
        return f"{best[0]} is the only point that reached the last rung, with {best[1]}"
    near = [pair for pair in rest if not above(best[1], pair[1], confidence)]
    name, other = (near or rest)[0]
    shown = f"{best[1]} against {other} of {name}"
    if best[1].seeds < 2 or other.seeds < 2:
        return f"one seed cannot show a winner: {best[0]} has {shown}"
    if not near:
        return f"{best[0]} wins: {shown}, apart with 95 % confidence"
    which = "the next" if near[0] is rest[0] else "all others"
    return f"{best[0]} is best but not told apart from {which}: {shown}"


def beaten(
    found: Sequence[tuple[str, Interval]], known: Sequence[tuple[str, Interval]],
    confidence: float = 0.95,
) -> str:  # fmt: skip
    """Say which of the points found are significantly above every hand-written spec.

    >>> beaten([("a", interval([0.9, 0.9]))], [("b", interval([0.1, 0.1]))])
    'above the hand-written spec: a; the best of these: b with 0.100 ± 0.000'
    """
    if not found or not known:
        return ""
    name, best = max(known, key=lambda pair: pair[1].mean)
    higher = [new for new, one in found if all(above(one, other, confidence) for _, other in known)]
    every = f"all {len(known)} hand-written specs" if len(known) > 1 else "the hand-written spec"
    told = f"above {every}: {', '.join(higher)}" if higher else f"no point found is above {every}"
    return f"{told}; the best of these: {name} with {best}"
