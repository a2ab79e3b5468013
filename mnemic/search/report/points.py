"""Read all measured specs of a leaderboard, an ablation or a search as points."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.storages import RDBStorage

from mnemic.dsl.load import load
from mnemic.dsl.plain import read_spec
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, UsageError, nearest
from mnemic.search.report.entries import read, stored
from mnemic.search.report.leaderboard import IN_ONE_BLOCK, RESULTS, SPACES, key_of
from mnemic.search.space import checks
from mnemic.search.space.settings import TaskEntry
from mnemic.search.study.patience import told_when_lost
from mnemic.search.study.records import LOOK, MARK, SPEC, START, Record, distinct, record
from mnemic.search.study.scores import by_seed, by_task, measured
from mnemic.search.study.storage import Beat, demand_file, give_back, open_storage
from mnemic.search.study.training import Run

BOARD, STUDY = "leaderboard", "study"
FILE: Final = "study.db"
PUBLISHED: Final = "published"
"""The rung of a task whose options are the defaults."""


@dataclass(frozen=True)
class Point:
    """A spec that was trained on every task.

    Args:
        name: the name of the spec, or of the trial.
        spec: the spec as it was trained, with its block.
        runs: one for every task and seed.
        costs: costs by name, measured time included.
        known: whether it was known before a search: a packaged spec, or a starting spec.
    """

    name: str
    spec: Spec
    runs: tuple[Run, ...]
    costs: Mapping[str, float]
    known: bool = True

    @property
    def seeds(self) -> dict[int, float]:
        """The mean skill over tasks of each seed."""
        return dict(zip(dict.fromkeys(run.seed for run in self.runs), by_seed(self.runs),
                        strict=True))  # fmt: skip

    @property
    def skill(self) -> float:
        """The mean skill over tasks and seeds."""
        return sum(self.seeds.values()) / len(self.seeds)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, in the order of the runs."""
        return tuple(by_task(self.runs))


@dataclass(frozen=True)
class Measured:
    """The points of one folder, file or storage of results, and the results that are not points.

    Args:
        kind: ``leaderboard`` (an ablation is one) or ``study``.
        where: the file or the storage, as it was named.
        points: those trained on every task on which any was trained.
        missing: the names of the others, each with the reason.
        trained: the settings of tasks, model and training under which they were trained, as plain
            data; None where a file of results stands alone.
    """

    kind: str
    where: str
    points: tuple[Point, ...]
    missing: Mapping[str, str]
    trained: Mapping[str, Any] | None = None


def measured_in(where: str, study: str | None = None) -> Measured:
    """Read the measurements of a folder, a file of results, or a storage.

    Args:
        where: the folder of a leaderboard, an ablation or a search; a file that one of the first
            two keeps; or the storage of a search, ``postgresql://...``. Of a leaderboard with one
            block for all, that block's results are taken.
        study: the name of a study, where a storage holds several.

    Raises:
        UsageError: there are no such results, or nothing was measured on every task.
    """
    if "://" in where:
        found = _of_study(where, study, where)
    else:
        path = Path(where)
        results = next(
            (p for p in (path / IN_ONE_BLOCK, path / RESULTS, path) if p.is_file()), None
        )
        if (path / FILE).is_file():
            found = _of_study(f"sqlite:///{(path / FILE).resolve()}", study, where)
        elif results is not None:
            found = _of_board(results)
        else:
            raise UsageError(
                f"{where}: neither the folder of a leaderboard, an ablation or a search, nor a "
                "file of results, nor the URL of a storage"
            )
    if not found.points:
        raise UsageError(f"{where}: nothing there was measured on every task")
    return found


# -- leaderboards ----------------------------------------------------------------------------


def _of_board(path: Path) -> Measured:
    try:
        kept = stored(path)
        entries = {name: read(name, told) for name, told in kept.items()}
        keys = {name: told["key"] for name, told in kept.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{path}: not a results file of mnemic leaderboard or ablate") from None
    beside = path.parent / SPACES
    try:
        space = stored(beside).get(path.name)
        trained = None if space is None else read_settings(space["search"], -1)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{beside}: not settings of mnemic leaderboard or ablate") from None
    points, missing = list[Point](), dict[str, str]()
    for name, entry in entries.items():
        if not entry.whole:
            missing[name] = (
                entry.why or "; ".join(dict.fromkeys(entry.failed.values())) or "not yet"
            )
            continue
        assert entry.look is not None
        try:
            spec = read_spec(kept[name].get("spec", name))
        except (InvalidSpec, UsageError) as error:
            missing[name] = str(error).splitlines()[0]
            continue
        if space is not None and keys[name] != key_of(spec, space["search"]):
            missing[name] = "measured under other settings; the same command measures it anew"
            continue
        step = sum(run.step_seconds for run in entry.runs) / len(entry.runs)
        points.append(Point(name, spec, entry.runs, {**entry.look.costs, "step_seconds": step}))
    return _same_tasks(BOARD, str(path), points, missing, trained)


# -- studies ---------------------------------------------------------------------------------


def _of_study(url: str, name: str | None, where: str) -> Measured:
    with told_when_lost(), closing(_Opened(url)) as opened:
        found = opened.study(name, where)
        records = [record(trial) for trial in found.get_trials(deepcopy=False)]
        mark = found.user_attrs.get(MARK)
    trained = None
    if mark is not None:
        trained = read_settings(json.loads(mark["identity"])["search"], _first_rung(records))
    return _same_tasks(STUDY, where, *of_records(records), trained)


def of_records(records: Sequence[Record]) -> tuple[list[Point], dict[str, str]]:
    """Return the trained trials of a search as points, and why the other trials are not.

    All are taken at the first rung that trains, which every trained point has reached.
    """
    points, missing = list[Point](), dict[str, str]()
    rung = _first_rung(records)
    for one in distinct(records):
        if one.runs(rung):
            points.append(_of_trial(one, rung))
        else:
            missing[f"trial {one.number}"] = one.why or str(one.kind)
    return points, missing


def _first_rung(records: Sequence[Record]) -> int:
    """Return the first rung of a search that trained."""
    return min((i for one in records for i in one.rungs if one.runs(i)), default=0)


class _Opened:
    """A storage that is closed at the end of the ``with`` block."""

    def __init__(self, url: str) -> None:
        demand_file(url)
        self.storage: RDBStorage = open_storage(url, Path(), Beat())

    def study(self, name: str | None, where: str) -> optuna.Study:
        names = [found.study_name for found in optuna.get_all_study_summaries(self.storage)]
        if name is None and len(names) == 1:
            name = names[0]
        if name not in names:
            near = nearest(name, names) if name else None
            guess = f"; did you mean {near!r}?" if near else ""
            told = f"no study is called {name!r}" if name else "several studies: give --study"
            raise UsageError(f"{where}: {told}; there are {', '.join(names) or 'none'}{guess}")
        return optuna.load_study(study_name=name, storage=self.storage)

    def close(self) -> None:
        give_back(self.storage)


def _of_trial(one: Record, rung: int) -> Point:
    """Return a trial as a point at the first rung that trains, which all have reached."""
    runs = tuple(one.runs(rung))
    costs = measured(runs, one.attributes[LOOK])
    kept = ("parameters", "state_bytes", "flops", "training_flops", "step_seconds")
    told = {name: costs[name] for name in kept if costs[name] == costs[name]}
    start = one.attributes.get(START)
    return Point(str(start or f"trial-{one.number}"), load(one.attributes[SPEC]), runs, told,
                 start is not None)  # fmt: skip


def read_settings(settings: Mapping[str, Any], rung: int) -> dict[str, Any]:
    """Return the settings of a space and rung that skills depend on besides spec and steps."""
    sizes = settings["rungs"][rung]["sizes"]
    tasks = {
        name: _read_task(name, task, sizes.get(name)) for name, task in settings["tasks"].items()
    }
    return {
        "tasks": tasks, "model": settings["model"], "training": settings["training"],
        "rates": settings.get("rates", []),
    }  # fmt: skip


def _read_task(name: str, told: Mapping[str, Any], size: str | None) -> dict[str, Any]:
    """Return all options of a task, and for a task of the user's own the digest of its file."""
    entry = {key: told[key] for key in TaskEntry.model_fields if key in told}
    options = _read_options(name, TaskEntry(**entry), size)
    return {**options, "digest": told["digest"]} if "digest" in told else options


def _read_options(task: str, entry: TaskEntry, size: str | None) -> dict[str, Any]:
    """Return all options of a task, or the stored ones of a task that is unknown here."""
    try:
        return asdict(checks.trained(task, entry, size).options)
    except UsageError:
        return {"rung": size or entry.rung or PUBLISHED, **entry.options}


def _same_tasks(
    kind: str,
    where: str,
    points: Iterable[Point],
    missing: Mapping[str, str],
    trained: Mapping[str, Any] | None,
) -> Measured:
    """Keep the points trained on every task that any point has; report the others as missing."""
    given = list(points)
    every = {task for point in given for task in point.tasks}
    whole = [point for point in given if set(point.tasks) == every]
    lacking = {p.name: "not on every task" for p in given if set(p.tasks) != every}
    return Measured(kind, where, tuple(whole), {**missing, **lacking}, trained)
