"""Hand-written specs on the same tasks with the same budget, beside the papers' claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

import rfc8785
from filelock import FileLock

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.plain import plain_spec
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, UsageError
from mnemic.models.device import OF_SPACE, demand_device
from mnemic.models.files import claim, write_json
from mnemic.search.report.entries import Entry, plain, read, stored
from mnemic.search.space.one_block import by_hand, fitted
from mnemic.search.space.settings import Rung, Settings
from mnemic.search.space.space import Space, differing
from mnemic.search.study import work
from mnemic.search.study.budget import beyond, bounds
from mnemic.search.study.isolated import Bounds, Failure, isolated
from mnemic.search.study.records import run_of
from mnemic.search.study.scores import by_seed
from mnemic.search.study.side_by_side import side_by_side
from mnemic.search.study.sweep import SEED, sweep
from mnemic.search.study.training import Job, Run
from mnemic.search.study.work import Look as Look

RESULTS: Final = "leaderboard.json"
IN_ONE_BLOCK: Final = "one-block.json"
SPACES: Final = "spaces.json"
"""What the files of results belong to."""
LATER: Final = "not yet; the same command goes on"
Tell = Callable[[str], None]


def leaderboard(
    space: Space, names: Sequence[str], folder: Path, told: Tell, again: bool = False,
    results: str = RESULTS, made: Mapping[str, Spec] | None = None, jobs: int = 1,
    demand: bool = True,
) -> list[Entry]:  # fmt: skip
    """Measure each spec; results and failures of earlier calls are reused.

    Every spec has its own block, or the space's where that is fixed, and the model, batches,
    steps and seeds of the last rung. Everything is derived, compiled and built before anything is
    trained. ``again`` retries what failed; ``results`` is the file that stores the entries;
    ``made`` are specs built in memory, by name: any other name is a packaged spec's or a path.
    ``jobs`` specs are trained at a time. On Ctrl-C runs save, and no incomplete entry is stored.
    Where the space has other tasks or more seeds than before, only these are trained. Without
    ``demand`` specs may all be refused or over the budget, and nothing is trained.

    Raises:
        UsageError: no spec is within the budget; no leaderboard belongs in the folder; or no such
            device.
        EnvironmentFailed: the device is not on this machine.
    """
    demand_device(space.settings.device, OF_SPACE)
    claim(folder, "leaderboard")
    demand_same(space, folder, results)
    before, kept = stored(folder / SPACES), (folder / results).exists()
    write_json(folder / SPACES, {**before, results: _identity(space)})
    (folder / "logs").mkdir(exist_ok=True)
    try:
        limits = bounds(space.settings, folder / "logs" / "reference.log")
        board = _Board(space, folder, results, limits, again, made or {})
        found = {name: board.looked(name, told) for name in names}
        if demand:
            _demand_some(list(found.values()), limits)
    except UsageError:
        if results not in before:  # nothing was trained: the corrected space is to be welcome
            write_json(folder / SPACES, before)
            if not kept:
                (folder / results).unlink(missing_ok=True)
        raise
    done = side_by_side(board.measured, list(found.values()), jobs, board.stopping)
    for index, entry in enumerate(done, 1):
        found[entry.name] = entry
        said = entry.skill or entry.why or dict(entry.failed)
        told(f"{index} of {len(names)}: {entry.name} {said}")
    return list(found.values())


def read_measured(
    space: Space, names: Sequence[str], folder: Path, results: str = RESULTS,
    made: Mapping[str, Spec] | None = None,
) -> list[Entry]:  # fmt: skip
    """Return the stored measurements of each spec, without measuring anything.

    Raises:
        UsageError: the folder's results belong to another space.
    """
    demand_same(space, folder, results)
    board = _Board(space, folder, results, {}, False, made or {})
    found = [board.known(name) for name in names]
    return [
        one if one is not None and (one.runs or one.failed or one.why)
        else Entry(name, None, (), why=LATER)
        for name, one in zip(names, found, strict=True)
    ]  # fmt: skip


def demand_same(space: Space, folder: Path, results: str) -> None:
    """Raise UsageError where a folder's results belong to another space or another block.

    Tasks and the number of seeds may differ: a leaderboard grows by them.
    """
    theirs, ours = stored(folder / SPACES).get(results), _fixed(_identity(space))
    if theirs is not None and (theirs := _fixed(theirs)) != ours:
        raise UsageError(
            f"{folder}: holds the leaderboard of another space, which differs in "
            f"{', '.join(differing(theirs, ours))}; choose another folder with --run"
        )


def _fixed(identity: dict[str, Any]) -> dict[str, Any]:
    """Return an identity without the tasks and seeds, to which a leaderboard may add."""
    search = {key: value for key, value in identity["search"].items() if key != "tasks"}
    rungs = [{key: rung[key] for key in rung if key != "seeds"} for rung in search["rungs"]]
    return {**identity, "search": {**search, "rungs": rungs}}


def key_of(spec: Spec, search: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the spec and the space's settings that an entry was measured with."""
    return sha256(rfc8785.dumps({"spec": spec_hash(spec), "search": search})).hexdigest()


def _identity(space: Space) -> dict[str, Any]:
    """Return the settings that all results in one file share, as plain data."""
    block = space.document.data.get("block")
    return {"spec": {"block": block}, "search": space.identity["search"]}


def _demand_some(entries: Sequence[Entry], limits: dict[str, float]) -> None:
    """Raise where nothing could be compared: all specs are refused or over the budget."""
    if entries and all(one.look is None for one in entries):
        first = entries[0]
        raise UsageError(f"no spec can be trained; {first.name}: {first.why}")
    seen = [one for one in entries if one.look is not None]
    if seen and all(one.over for one in seen):
        least = min(seen, key=lambda one: len(one.over))
        told = ", ".join(f"{cost} at most {bound:g}" for cost, bound in limits.items())
        raise UsageError(
            f"no spec is within the budget of {told}: {least.name} has {', '.join(least.over)}"
        )


@dataclass
class _Board:
    """The entries of one file, and how a new one is measured."""

    space: Space
    folder: Path
    results: str
    limits: dict[str, float]
    again: bool
    made: Mapping[str, Spec]

    def __post_init__(self) -> None:
        self.path = self.folder / self.results
        self.stored = stored(self.path)
        self.stopping, self.writing = Event(), Lock()

    def spec(self, name: str) -> Spec:
        """Return the spec of that name, in the space's block."""
        made = self.made.get(name)
        return by_hand(self.space, name) if made is None else fitted(self.space, made)

    @property
    def allowed(self) -> Bounds:
        limits = self.space.settings.limits
        return Bounds(limits.seconds, limits.memory)

    def known(self, name: str) -> Entry | None:
        """Return the stored entry of the same spec under the same settings, or None."""
        try:
            key = self._key(self.spec(name))
        except InvalidSpec as error:
            return Entry(name, None, (), why=str(error).splitlines()[0])
        old = self.stored.get(name, {})
        return read(name, old) if old.get("key") == key else None

    def looked(self, name: str, told: Tell) -> Entry:
        """Return the stored entry, or one without runs that says what is known before training."""
        old = self.known(name)
        if old is not None and not (self.again and (old.why or old.failed or old.unswept)):
            return old
        try:
            spec = self.spec(name)
        except InvalidSpec as error:
            return self._refused(name, str(error).splitlines()[0], told)
        settings = self.space.settings
        first = settings.rungs[0] if settings.rungs[0].untrained is not None else None
        seen = isolated(work.look, spec, settings, first, bounds=self.allowed, log=self._log(name))
        if isinstance(seen, Failure):
            refused = self._refused(name, f"{seen.kind}: {seen.why}", told)
            return self._keep(replace(refused, spare=self._done(name, spec)), spec)
        over, spare = beyond(seen.value.costs, self.limits), self._done(name, spec)
        return self._keep(Entry(name, seen.value, (), over, spare=spare), spec)

    def _done(self, name: str, spec: Spec) -> tuple[Run, ...]:
        """Return the stored runs of the same spec, under these settings or others."""
        old = self.stored.get(name)
        if old is None or plain_spec(spec) != old.get("spec"):
            return ()
        entry = read(name, old)
        return tuple(run for run in (*entry.runs, *entry.spare) if run.key)

    def _keep(self, entry: Entry, spec: Spec) -> Entry:
        kept = {"key": self._key(spec), "spec": plain_spec(spec), **plain(entry)}
        lock = FileLock(self.folder / f"{self.results}.lock")
        with self.writing, lock:  # another command may have entries in this folder, too
            self.stored = {**stored(self.path), entry.name: kept}
            write_json(self.path, self.stored)
        return entry

    def _refused(self, name: str, why: str, told: Tell) -> Entry:
        told(f"{name} cannot be run: {why}")
        return Entry(name, None, (), why=why)

    def measured(self, entry: Entry) -> Entry:
        """Train an entry that has no runs yet, store it, and return it with its runs."""
        if entry.look is None or entry.runs or entry.failed:
            return entry
        spec = self.spec(entry.name)
        return self._keep(self._tasks(self._swept(entry, spec), spec), spec)

    def _swept(self, entry: Entry, spec: Spec) -> Entry:
        """Return the entry with the learning rate that did best, where there are several to try."""
        rates, steps = self.space.settings.rates, self.space.settings.rungs[-1].steps
        if not rates:
            return entry
        assert steps is not None

        def tried(rate: float, length: int) -> float:
            rung = self.space.settings.rungs[-1].model_copy(update={"steps": length})
            runs = list[Run]()
            for job in work.jobs(spec, self._settings(rate), rung, (SEED,)):
                found = self._run(entry.name, job)
                if isinstance(found, Failure):
                    return -math.inf
                runs.append(found)
            return by_seed(runs)[0]

        rate, heats = sweep(rates, steps, tried)
        return replace(entry, rate=rate, heats=heats)

    def _tasks(self, entry: Entry, spec: Spec) -> Entry:
        """Run an entry's tasks; a task that fails with one seed is not tried with another."""
        runs, failed = list[Run](), dict[str, str]()
        done = {run.key: run for run in entry.spare}
        rung: Rung = self.space.settings.rungs[-1]
        for job in work.jobs(spec, self._settings(entry.rate), rung, range(rung.seeds)):
            if job.task in failed:
                continue
            found = done.pop(job.key, None) or self._shared(job.key) or self._run(entry.name, job)
            if isinstance(found, Failure):
                failed[job.task] = f"{found.kind}: {found.why}"
            else:
                runs.append(found)
        whole = tuple(run for run in runs if run.task not in failed)
        rest = tuple(done.values()) + tuple(run for run in runs if run.task in failed)
        return replace(entry, runs=whole, failed=failed, spare=rest)

    def _shared(self, key: str) -> Run | None:
        """Return another entry's run that this one can share: the same rule in this block."""
        with self.writing:
            every = [run for old in self.stored.values() for run in old["runs"]]
        return next((run_of(run) for run in every if run.get("key") == key), None)

    def _settings(self, rate: float | None) -> Settings:
        settings = self.space.settings
        if rate is None:
            return settings
        training = settings.training.model_copy(update={"lr": rate})
        return settings.model_copy(update={"training": training})

    def _run(self, name: str, job: Job) -> Run | Failure:
        allowed = self.allowed
        done = isolated(
            work.run_one, job, self.folder / "runs", allowed.seconds, bounds=allowed,
            log=self._log(name), stopping=self.stopping,
        )  # fmt: skip
        ended = isinstance(done, Failure) and done.kind == "interrupted"
        if ended or self.stopping.is_set():
            raise KeyboardInterrupt
        return done if isinstance(done, Failure) else done.value

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name.replace('/', '_')}.log"

    def _key(self, spec: Spec) -> str:
        return key_of(spec, self.space.identity["search"])
