"""The report of a search: ``report.html``, ``best/*.yaml``, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemic.dsl.hashing import spec_hash
from mnemic.models.files import replacing
from mnemic.search.report.best import best_spec, write_best
from mnemic.search.report.ranking import Ranked, beaten, ranked, verdict
from mnemic.search.space.one_block import by_hand
from mnemic.search.space.space import Space
from mnemic.search.study.confirm import Confirmed, confidence, confirm, confirmed
from mnemic.search.study.records import Record
from mnemic.search.study.rivals import rivals
from mnemic.search.study.scores import Interval
from mnemic.search.study.search import Search

NAME = "report.html"


@dataclass(frozen=True)
class Summary:
    """The outcome of a search.

    Args:
        study: the study's name.
        folder: the folder of the run.
        ends: the number of trials by how they ended.
        best: the points that reached the last rung, best mean skill first.
        verdict: whether there is a winner.
        again: the results of every spec on fresh seeds, also with more steps or a wider model.
        report: the path of the page.
    """

    study: str
    folder: Path
    ends: dict[str, int]
    best: tuple[Ranked, ...]
    verdict: str
    again: tuple[Confirmed, ...]
    report: Path

    @property
    def confirmed(self) -> dict[str, Interval | str]:
        """Intervals of mean skill at the last rung's budget, or why there is none."""
        return intervals(self.again)

    def to_json(self) -> dict[str, Any]:
        """Return the report's summary as plain data."""
        return {
            "study": self.study,
            "folder": str(self.folder),
            "trials": sum(self.ends.values()),
            "ends": self.ends,
            "verdict": self.verdict,
            "best": [_plain(point) for point in self.best[:10]],
            "confirmed": _plain_intervals(self.confirmed),
            "elsewhere": {
                setting: _plain_intervals(intervals(self.again, setting))
                for setting in dict.fromkeys(one.setting for one in self.again)
                if setting
            },
            "report": str(self.report),
        }


def write(search: Search) -> Summary:
    """Write the report and the best specs of the results so far."""
    from mnemic.search.report.page import page

    records = search.records()
    points = ranked(search.space, records)
    write_best(search.space, points, search.folder / "best")
    again = tuple(confirmed(search.space, search.folder))
    near = [(point.start or point.spec.name, point.skill) for point in points]
    own = {point.spec.name for point in points}
    said = _said(search.space, again, own) or verdict(near)
    path = search.folder / NAME
    summary = Summary(search.space.name, search.folder, ends(records), tuple(points), said, again,
                      path)  # fmt: skip
    with replacing(path) as beside:
        beside.write_text(page(search, records, summary), encoding="utf-8")
    return summary


def _said(space: Space, again: Sequence[Confirmed], own: Collection[str]) -> str:
    """Say what the results on fresh seeds show; ``own`` are the names of the points found."""
    told, sure_of = [], confidence(space)
    for setting in dict.fromkeys(one.setting for one in again):
        found = intervals(again, setting)
        sure = [(name, one) for name, one in found.items() if isinstance(one, Interval)]
        if not sure:
            continue
        new = [pair for pair in sure if pair[0] in own]
        beside = beaten(new, [pair for pair in sure if pair[0] not in own], sure_of)
        where = f"with {setting}" if setting else "on fresh seeds"
        told.append(f"{where}, {verdict(sure, sure_of)}" + (f"; {beside}" if beside else ""))
    return "; ".join(told)


def confirm_best(search: Search, jobs: int = 1) -> list[Confirmed]:
    """Train the best points and the specs to compare with on fresh seeds, ``jobs`` at a time."""
    space = search.space
    points = ranked(space, search.records())
    told = space.settings.confirm
    new = [point for point in points if point.start is None][: told.best]
    known = [point for point in points if point.start is not None][: told.best]
    hand = [by_hand(space, p.start) for p in known if p.start]
    hand += rivals(space, search.folder / "logs", search.tell, jobs)
    return confirm(
        space,
        [(p.spec.name, best_spec(space, p, i)) for i, p in enumerate(new, 1)],
        list({spec.name: (spec.name, spec) for spec in hand}.values()),
        search.folder,
        search.tell,
        jobs,
    )


def intervals(found: Sequence[Confirmed], setting: str = "") -> dict[str, Interval | str]:
    """Return, for each spec of a setting, the interval of its mean skill, or why there is none."""
    return {one.name: one.skill or one.why for one in found if one.setting == setting}


def _plain_intervals(found: Mapping[str, Interval | str]) -> dict[str, Any]:
    return {
        name: one if isinstance(one, str) else [one.mean, one.half, one.seeds]
        for name, one in found.items()
    }


def ends(records: Sequence[Record]) -> dict[str, int]:
    """Count the trials by how they ended; those that have not ended, by Optuna's state."""
    found = Counter(one.kind or one.state.name.lower() for one in records)
    return dict(found.most_common())


def _plain(point: Ranked) -> dict[str, Any]:
    return {
        "name": point.spec.name,
        "hash": spec_hash(point.spec),
        "start": point.start,
        "skill": point.skill.mean,
        "half": point.skill.half,
        "seeds": point.skill.seeds,
        "tasks": {task: found.mean for task, found in point.tasks.items()},
        "costs": {name: point.measured[name] for name in ("parameters", "state_bytes", "flops",
                                                          "step_seconds")},
    }  # fmt: skip
