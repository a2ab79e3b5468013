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
from mnemic.search.study.confirm import Confirmed, by_hand, confirm, confirmed
from mnemic.search.study.records import Record
from mnemic.search.study.rivals import rivals
from mnemic.search.study.scores import Interval, by_seed, interval
from mnemic.search.study.search import Search

NAME = "report.html"


@dataclass(frozen=True)
class Summary:
    """What a search came to.

    Args:
        study: its name.
        folder: of the run.
        ends: how many trials ended how.
        best: points that came to the last rung, best mean skill first.
        verdict: whether there is a winner.
        confirmed: intervals of mean skill on fresh seeds, or why there is none.
        report: the page.
    """

    study: str
    folder: Path
    ends: dict[str, int]
    best: tuple[Ranked, ...]
    verdict: str
    confirmed: dict[str, Interval | str]
    report: Path

    def to_json(self) -> dict[str, Any]:
        """Return the report's summary as plain data."""
        return {
            "study": self.study,
            "folder": str(self.folder),
            "trials": sum(self.ends.values()),
            "ends": self.ends,
            "verdict": self.verdict,
            "best": [_plain(point) for point in self.best[:10]],
            "confirmed": {
                name: found if isinstance(found, str) else [found.mean, found.half, found.seeds]
                for name, found in self.confirmed.items()
            },
            "report": str(self.report),
        }


def write(search: Search) -> Summary:
    """Write the report and the best specs of what is there so far."""
    from mnemic.search.report.page import page

    records = search.records()
    points = ranked(search.space, records)
    write_best(search.space, points, search.folder / "best")
    again = intervals(confirmed(search.space, search.folder))
    near = [(point.start or point.spec.name, point.skill) for point in points]
    said = _said(again, {point.spec.name for point in points}) or verdict(near)
    path = search.folder / NAME
    summary = Summary(search.space.name, search.folder, ends(records), tuple(points), said, again,
                      path)  # fmt: skip
    with replacing(path) as beside:
        beside.write_text(page(search, records, summary), encoding="utf-8")
    return summary


def _said(again: Mapping[str, Interval | str], own: Collection[str]) -> str:
    """Say in words what the fresh seeds show; ``own`` names the points that were found."""
    sure = [(name, found) for name, found in again.items() if isinstance(found, Interval)]
    if not sure:
        return ""
    new = [pair for pair in sure if pair[0] in own]
    beside = beaten(new, [pair for pair in sure if pair[0] not in own])
    return f"on fresh seeds, {verdict(sure)}" + (f"; {beside}" if beside else "")


def confirm_best(search: Search) -> list[Confirmed]:
    """Train the best points and the specs to compare with on fresh seeds."""
    space = search.space
    points = ranked(space, search.records())
    told = space.settings.confirm
    new = [point for point in points if point.start is None][: told.best]
    known = [point for point in points if point.start is not None][: told.best]
    specs = [(p.spec.name, best_spec(space, p, i)) for i, p in enumerate(new, 1)]
    hand = [by_hand(space, p.start) for p in known if p.start]
    hand += rivals(space, search.folder / "logs", search.tell)
    specs += {spec.name: (spec.name, spec) for spec in hand}.values()
    return confirm(space, specs, search.folder, search.tell)


def intervals(found: Sequence[Confirmed]) -> dict[str, Interval | str]:
    """Return, for each spec, the interval of its mean skill, or why there is none."""
    return {one.name: interval(by_seed(one.runs)) if one.runs else one.why for one in found}


def ends(records: Sequence[Record]) -> dict[str, int]:
    """Count how many trials ended how; those that did not end, by Optuna's state."""
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
