"""A leaderboard's entry for a spec, and the file that stores the entries."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from mnemic.search.study.records import run_of
from mnemic.search.study.scores import Interval, by_seed, by_task, interval
from mnemic.search.study.sweep import Heat
from mnemic.search.study.training import Run
from mnemic.search.study.work import Look

ENDLESS: Final = 1e300
"""How an infinite error of an untrained memory is kept: JSON has no infinity."""


@dataclass(frozen=True)
class Entry:
    """A spec measured on all tasks, or why it was not.

    Args:
        name: the spec's name.
        look: what is known without training.
        runs: one for every task and seed, except those that failed.
        over: costs above their bounds, in words: the comparison is not at equal budget.
        why: the reason why nothing could be run.
        failed: the reason why there is no run, by task.
        rate: the learning rate that a sweep chose; None without a sweep.
        heats: the heats of the sweep.
        spare: earlier runs of tasks and seeds that are not needed now.
    """

    name: str
    look: Look | None
    runs: tuple[Run, ...]
    over: tuple[str, ...] = ()
    why: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)
    rate: float | None = None
    heats: tuple[Heat, ...] = ()
    spare: tuple[Run, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every task has been run."""
        return bool(self.runs) and not self.failed

    @property
    def unswept(self) -> bool:
        """Whether the sweep left out a learning rate because a run with it failed."""
        return any(heat.skill == -math.inf for heat in self.heats)

    @property
    def seeds(self) -> list[float]:
        """The mean skill over tasks of each seed; none where a task is missing."""
        return by_seed(self.runs) if self.whole else []

    @property
    def skill(self) -> Interval | None:
        """The mean skill over tasks, an interval over seeds; None where a task is missing."""
        return interval(self.seeds) if self.whole else None

    @property
    def tasks(self) -> dict[str, Interval]:
        """The skill on each task."""
        return {task: interval(skills) for task, skills in by_task(self.runs).items()}


def alike(entries: Sequence[Entry]) -> list[tuple[str, ...]]:
    """Return the groups of names that share all runs, being the same rule in one common block."""
    found: dict[frozenset[str], list[str]] = {}
    for entry in entries:
        keys = frozenset(run.key for run in entry.runs)
        if keys and "" not in keys:
            found.setdefault(keys, []).append(entry.name)
    return [tuple(names) for names in found.values() if len(names) > 1]


def stored(path: Path) -> dict[str, dict[str, Any]]:
    """Load every entry of a file as plain data, by name; none where there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def plain(entry: Entry) -> dict[str, Any]:
    """Return an entry as plain data; `read` gives it back."""
    look = None if entry.look is None else asdict(entry.look)
    if look is not None and look["error"] == float("inf"):
        look["error"] = ENDLESS
    data = {"look": look, "runs": [asdict(run) for run in entry.runs], "over": list(entry.over),
            "why": entry.why, "failed": dict(entry.failed)}  # fmt: skip
    if entry.spare:
        data["spare"] = [asdict(run) for run in entry.spare]
    if entry.rate is None:
        return data
    heats = [{**asdict(h), "skill": h.skill if h.skill > -math.inf else None} for h in entry.heats]
    return {**data, "rate": entry.rate, "heats": heats}


def read(name: str, old: Mapping[str, Any]) -> Entry:
    """Return the entry that `plain` made this data of."""
    look = None if old["look"] is None else Look(**old["look"])
    if look is not None and look.error is not None and look.error >= ENDLESS:
        look = replace(look, error=math.inf)
    runs, heats = map(run_of, old["runs"]), map(_heat, old.get("heats", ()))
    spare = map(run_of, old.get("spare", ()))
    return Entry(name, look, tuple(runs), tuple(old["over"]), old["why"], old.get("failed", {}),
                 old.get("rate"), tuple(heats), tuple(spare))  # fmt: skip


def _heat(told: Mapping[str, Any]) -> Heat:
    skill = -math.inf if told["skill"] is None else told["skill"]
    return Heat(told["rate"], told["steps"], skill)
