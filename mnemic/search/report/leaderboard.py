"""Specs made by hand on the same tasks with the same budget, the papers' claims beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import rfc8785

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec
from mnemic.models.files import claim, write_json
from mnemic.search.space.settings import Settings
from mnemic.search.space.space import Space
from mnemic.search.study import work
from mnemic.search.study.budget import bounds
from mnemic.search.study.confirm import by_hand
from mnemic.search.study.isolated import Bounds, Failure, isolated
from mnemic.search.study.scores import Interval, by_seed, by_task, interval
from mnemic.search.study.training import Run
from mnemic.search.study.work import Look

RESULTS = "leaderboard.json"
LATER = "not yet; the same command goes on"


@dataclass(frozen=True)
class Entry:
    """A spec on all tasks, or why not.

    Args:
        name: of the spec.
        look: what is known without training.
        runs: every task with every seed, but those that failed.
        over: costs above their bounds, in words: the comparison is not at equal budget.
        why: nothing could be run.
        failed: why there is no run, by task.
    """

    name: str
    look: Look | None
    runs: tuple[Run, ...]
    over: tuple[str, ...] = ()
    why: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every task was run."""
        return bool(self.runs) and not self.failed

    @property
    def skill(self) -> Interval | None:
        """The mean skill over tasks, an interval over seeds; None where a task is missing."""
        return interval(by_seed(self.runs)) if self.whole else None

    @property
    def tasks(self) -> dict[str, Interval]:
        """The skill on each task."""
        return {task: interval(skills) for task, skills in by_task(self.runs).items()}


def leaderboard(
    space: Space, names: Sequence[str], folder: Path, told: Callable[[str], None],
    again: bool = False,
) -> list[Entry]:  # fmt: skip
    """Measure each spec; what an earlier call measured or saw fail is read.

    Every spec has its own block, or the space's where that is fixed, and the model, batches,
    steps and seeds of the last rung. ``again`` tries once more what failed.
    """
    claim(folder, "leaderboard")
    (folder / "logs").mkdir(exist_ok=True)
    limits = bounds(space.settings, folder / "logs" / "reference.log")
    stored = _kept(folder)
    found = []
    for index, name in enumerate(names, 1):
        key = _key(space, by_hand(space, name))
        old = stored.get(name, {})
        if old.get("key") == key and not (again and (old["why"] or old.get("failed"))):
            entry = _read(name, old)
        else:
            entry = _measured(space, name, limits, folder)
            stored[name] = {"key": key, **_plain(entry)}
            write_json(folder / RESULTS, stored)
        found.append(entry)
        told(f"{index} of {len(names)}: {name} {entry.skill or entry.why or dict(entry.failed)}")
    return found


def kept(space: Space, names: Sequence[str], folder: Path) -> list[Entry]:
    """What earlier calls measured of each spec, and nothing new."""
    found = _kept(folder)
    return [
        _read(name, found[name])
        if found.get(name, {}).get("key") == _key(space, by_hand(space, name))
        else Entry(name, None, (), why=LATER)
        for name in names
    ]


def _measured(space: Space, name: str, limits: dict[str, float], folder: Path) -> Entry:
    try:
        spec = by_hand(space, name)
    except InvalidSpec as error:
        return Entry(name, None, (), why=str(error).splitlines()[0])
    settings = space.settings
    allowed = Bounds(settings.limits.seconds, settings.limits.memory)
    log = folder / "logs" / f"{name.replace('/', '_')}.log"
    first = settings.rungs[0] if settings.rungs[0].untrained is not None else None
    seen = isolated(work.look, spec, settings, first, bounds=allowed, log=log)
    if isinstance(seen, Failure):
        return Entry(name, None, (), why=f"{seen.kind}: {seen.why}")
    look = seen.value
    over = [f"{cost} {look.costs[cost] / bound:.1f}x" for cost, bound in limits.items()
            if look.costs[cost] > bound]  # fmt: skip
    return _tasks(Entry(name, look, (), tuple(over)), spec, settings, folder, allowed)


def _tasks(entry: Entry, spec: Spec, settings: Settings, folder: Path, allowed: Bounds) -> Entry:
    """The entry with its runs; a task that fails with one seed is not tried with another."""
    log = folder / "logs" / f"{entry.name.replace('/', '_')}.log"
    runs, failed = list[Run](), dict[str, str]()
    rung = settings.rungs[-1]
    for job in work.jobs(spec, settings, rung, range(rung.seeds)):
        if job.task in failed:
            continue
        done = isolated(
            work.run_one, job, folder / "runs", allowed.seconds, bounds=allowed, log=log
        )
        found = done if isinstance(done, Failure) else done.value
        if isinstance(found, Failure):
            failed[job.task] = f"{found.kind}: {found.why}"
        else:
            runs.append(found)
    return replace(entry, runs=tuple(r for r in runs if r.task not in failed), failed=failed)


def _key(space: Space, spec: Spec) -> str:
    identity = {"spec": spec_hash(spec), "search": space.identity["search"]}
    return sha256(rfc8785.dumps(identity)).hexdigest()


def _kept(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / RESULTS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _plain(entry: Entry) -> dict[str, Any]:
    look = None if entry.look is None else asdict(entry.look)
    if look is not None and look["error"] == float("inf"):
        look["error"] = 1e300
    return {"look": look, "runs": [asdict(run) for run in entry.runs], "over": list(entry.over),
            "why": entry.why, "failed": dict(entry.failed)}  # fmt: skip


def _read(name: str, old: dict[str, Any]) -> Entry:
    from mnemic.search.study.records import run_of

    look = None if old["look"] is None else Look(**old["look"])
    runs, failed = tuple(map(run_of, old["runs"])), old.get("failed", {})
    return Entry(name, look, runs, tuple(old["over"]), old["why"], failed)
