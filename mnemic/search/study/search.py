"""A search: a space, the study that keeps its trials, and the folder of its runs."""

from __future__ import annotations

import copy
import json
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from mnemic.errors import InvalidSpec, UsageError
from mnemic.models.files import claim
from mnemic.search.space.preview import demand_points
from mnemic.search.space.settings import COSTS
from mnemic.search.space.space import Space, differing
from mnemic.search.study.alone import alone
from mnemic.search.study.budget import bounds, demand_budget
from mnemic.search.study.heartbeats import begin, bring_back
from mnemic.search.study.owners import dead, owner
from mnemic.search.study.patience import Patience
from mnemic.search.study.queue import demand_grid, queue_grid, queue_starts
from mnemic.search.study.records import (
    AGAIN,
    INTERRUPTED,
    KIND,
    MARK,
    UNCOUNTED,
    WHY,
    WORKER,
    Record,
    counted,
    record,
    replaced,
)
from mnemic.search.study.samplers import sampler
from mnemic.search.study.storage import Beat, give_back, open_storage

READY: Final = "mnemic:ready"
BOUNDS: Final = "mnemic:bounds"
FRUITLESS: Final = 200
"""Trials without a new valid point after which a search gives up."""

Tell = Callable[[str], None]


@dataclass
class Search:
    """An open search: its space, study, storage and folder.

    Args:
        space: the space to search.
        study: Optuna's study.
        storage: the storage of the study.
        folder: the folder of training runs, logs and reports on this machine.
        beat: the heartbeat settings of this worker.
        tell: called with a line about every trial.
        patience: how long to wait for a storage that is unreachable.
        bounds: the upper bounds of the costs, see `mnemic.search.study.budget`.
        resumed: whether the study was begun before.
    """

    space: Space
    study: Study
    storage: RDBStorage
    folder: Path
    beat: Beat
    tell: Tell
    patience: Patience = field(default_factory=Patience)
    bounds: dict[str, float] = field(default_factory=dict)
    resumed: bool = False
    _finished: dict[int, Record] = field(default_factory=dict)

    @property
    def stopping(self) -> threading.Event:
        """An event that is set when the worker must stop, even during a trial."""
        return self.patience.stopping

    @property
    def runs(self) -> Path:
        """The folder of the training runs."""
        return self.folder / "runs"

    def records(self) -> list[Record]:
        """Return all trials so far, of every worker."""
        return [self._record(trial) for trial in self.study.get_trials(deepcopy=False)]

    def _record(self, trial: FrozenTrial) -> Record:
        """Return a trial's record, from a cache once the trial can no longer change."""
        known = self._finished.get(trial.number)
        if known is None:
            known = record(trial)
            if trial.state.is_finished():
                self._finished[trial.number] = known
        return known

    def wanted(self) -> str | None:
        """Say why no further trial is needed beside those that wait to be repeated, or None."""
        self._fail_dead()
        self.patience.call(bring_back, self.storage)
        self.patience.call(begin, self.storage, [one._trial_id for one in self._running()])
        fail_stale_trials(self.study)
        found = self.records()
        if (done := counted(found)) >= self.space.settings.trials:
            return f"{done} trials"
        waiting = any(one.state is TrialState.WAITING for one in found)
        if self.space.settings.sampler == "grid":  # ends by itself
            return None if waiting or self._queue_more() else "every point of the grid"
        recent = [one for one in found if one.state.is_finished()][-FRUITLESS:]
        barren = len(recent) == FRUITLESS and all(one.kind in UNCOUNTED for one in recent)
        return f"no new valid point among the last {FRUITLESS}" if barren else None

    def _fail_dead(self) -> None:
        """Requeue, at once, the trials of processes on this machine that have ended."""
        for trial in self._running():
            if not dead(trial.user_attrs.get(WORKER), trial.number):
                continue
            try:
                changed = self.storage.set_trial_state_values(
                    trial._trial_id, state=TrialState.FAIL
                )
            except UpdateFinishedTrialError:  # another worker saw it too
                continue
            retry = self.storage.get_heartbeat_stale_trial_callback()
            if changed and retry is not None:
                retry(self.study, copy.deepcopy(self.storage.get_trial(trial._trial_id)))

    def _running(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def unclaimed(self) -> bool:
        """Return whether a trial runs that no worker has claimed.

        Its worker is about to claim it, or died before it could; then the trial is requeued after
        the grace period.
        """
        told = [(one.user_attrs.get(WORKER) or {}, one.number) for one in self._running()]
        return any(owner.get("trial") != number for owner, number in told)

    def ask(self, repeated: bool = False) -> Trial | None:
        """Take the next trial: one that is to be repeated, one that waits, or a new one.

        None where none is left of those to be repeated, if ``repeated`` asks for these alone, or
        of the points of a grid. SQLite does not lock rows that are read, so two workers could take
        the same waiting trial: a lock serialises their calls.
        """
        grid = self.space.settings.sampler == "grid"
        one_by_one = grid or self.storage.engine.dialect.name == "sqlite"
        with self._alone() if one_by_one else nullcontext():
            trial = self._ask_retry()
            if trial is None:
                if repeated or (grid and not self._waiting()):
                    return None
                trial = self.study.ask()
        trial.set_user_attr(WORKER, owner(trial.number))
        return trial

    def _ask_retry(self) -> Trial | None:
        """Take the first waiting trial that repeats another; None without one."""
        for one in self._waiting():
            if _is_retry(self._record(one)):
                running = TrialState.RUNNING
                with suppress(UpdateFinishedTrialError):  # another worker took it, and ended it
                    if self.storage.set_trial_state_values(one._trial_id, running):
                        return Trial(self.study, one._trial_id)
        return None

    def _alone(self) -> AbstractContextManager[None]:
        return alone(self.storage, self.folder, self.study.study_name, self.patience)

    def _waiting(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))

    def _queue_more(self) -> bool:
        """Queue the next points of the grid; False where there are no more."""
        with self._alone():
            return bool(self._waiting()) or queue_grid(self.study, self.space)

    def queue_starts(self) -> None:
        """Queue the starting specs that a study begun before does not have yet."""
        if self.resumed:
            with self._alone():
                queue_starts(self.study, self.space, self.tell)

    def put_back(self, trial: Trial) -> None:
        """Requeue an interrupted trial, for another worker or a later one.

        Raises UpdateFinishedTrialError, without requeueing, where another worker has ended it.
        """
        kept = dict(trial.user_attrs)
        trial.set_user_attr(KIND, INTERRUPTED)
        self._queue(trial, kept)
        self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

    def try_again(self, wanted: Callable[[Record], bool]) -> int:
        """Requeue the selected trials, and return their number.

        A trial that was already requeued is left out; its repetition may be requeued.
        """
        with self._alone():
            records = self.records()
            gone = replaced(records)
            asked = {r.number for r in records if r.number not in gone and wanted(r)}
            for trial in self.study.get_trials(deepcopy=False):
                if trial.number in asked:
                    self._queue(trial, {**trial.user_attrs, AGAIN: trial.number})
        return len(asked)

    def _queue(self, trial: Trial | FrozenTrial, attributes: Mapping[str, Any]) -> None:
        """Queue a trial's point, with its results so far but not its end."""
        kept = {name: value for name, value in attributes.items() if name not in (KIND, WHY)}
        self.study.add_trial(
            optuna.create_trial(
                state=TrialState.WAITING, params=trial.params,
                distributions=trial.distributions, user_attrs=kept,
            )
        )  # fmt: skip

    def close(self) -> None:
        """Release the storage's connections."""
        give_back(self.storage)

    @contextmanager
    def beating(self, trial: Trial) -> Iterator[None]:
        """Show that this worker lives while a trial is done."""
        done = threading.Event()
        number = trial._trial_id
        self.storage.record_heartbeat(number)

        def beat() -> None:
            while not done.wait(self.beat.interval):
                with suppress(StorageInternalError, SQLAlchemyError):  # the trial's calls tell
                    self.storage.record_heartbeat(number)
            self.storage.remove_session()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def open_search(
    space: Space, folder: Path, storage: str | None = None, beat: Beat | None = None,
    tell: Tell = print, patience: Patience | None = None,
) -> Search:  # fmt: skip
    """Open a new search, or resume one that was begun.

    Raises:
        InvalidSpec: the space contradicts itself: no sampled point is valid.
        UsageError: no examined point is within the budget; the folder is not a search's; a study
            of that name belongs to another space, or is not one of mnemic's.
        EnvironmentFailed: the storage cannot be used.
    """
    demand_points(space)
    claim(folder, "search")
    (folder / "logs").mkdir(exist_ok=True)
    beat = beat or Beat()
    patience = patience or Patience()
    patience.tell = tell
    kept = patience.patient(open_storage(storage, folder, beat))
    try:
        study, fresh = _study(space, kept)
        seed = space.settings.seed
        chosen = seed if fresh else seed + 1 + random.SystemRandom().randrange(2**20)
        study.sampler = sampler(space.settings.sampler, chosen)
        search = Search(space, study, kept, folder, beat, tell, patience)
        if READY in study.user_attrs:
            search.bounds, search.resumed = _bounds(search), True
        else:
            tell("before the first trial: the costs of the reference and of some points")
            _prepare(search)
    except BaseException:
        give_back(kept)
        raise
    return search


def _bounds(search: Search) -> dict[str, float]:
    """Return the bounds of costs, found once for all workers."""
    kept: dict[str, float] | None = search.study.user_attrs.get(BOUNDS)
    if kept is None:
        kept = bounds(search.space.settings, search.folder / "logs" / "reference.log")
        search.study.set_user_attr(BOUNDS, kept)
    return kept


def directions(space: Space) -> list[StudyDirection]:
    """Return the direction of each objective: skills are maximised, costs minimised."""
    low, high = StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE
    return [low if name in COSTS else high for name in space.settings.objectives]


def _study(space: Space, storage: RDBStorage) -> tuple[Study, bool]:
    """Return the study of the space, and whether this call created it."""
    mark = {"space": space.hash, "identity": json.dumps(space.identity, sort_keys=True)}
    fresh = True
    try:
        study = optuna.create_study(
            study_name=space.name, storage=storage, directions=directions(space)
        )
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(study_name=space.name, storage=storage)
        if MARK in study.user_attrs or study.get_trials(deepcopy=False):
            _same_space(study, space)
            return study, False
        fresh = False  # its maker has not come to the mark yet, or died before it
    study.set_user_attr(MARK, mark)
    study.set_metric_names(list(space.settings.objectives))
    return study, fresh


def _same_space(study: Study, space: Space) -> None:
    found = study.user_attrs.get(MARK)
    if found is None:
        raise UsageError(f"study {space.name!r}: kept in this storage, but not made by mnemic")
    if found["space"] == space.hash:
        return
    parts = differing(json.loads(found["identity"]), space.identity)
    raise UsageError(
        f"study {space.name!r}: the storage has a study of another space under this name, which "
        f"differs in {', '.join(parts)}; give the space another name, or the run another folder"
    )


def _prepare(search: Search) -> None:
    """Begin a study; if it is refused, delete it, since a corrected space is a different one."""
    space = search.space
    try:
        search.bounds = _bounds(search)
        demand_budget(space, search.bounds, search.folder / "logs" / "budget.log")
        _begin(search)
    except (UsageError, InvalidSpec):
        with suppress(KeyError):  # another worker was refused, too, and has taken it back
            if not search.study.get_trials(deepcopy=False):
                optuna.delete_study(study_name=space.name, storage=search.storage)
        raise


def _begin(search: Search) -> None:
    """Queue the starting specs, once: the first worker does it."""
    study, space = search.study, search.space
    with search._alone():
        if READY in study.user_attrs:
            return
        if space.settings.sampler == "grid":
            demand_grid(space)
        queue_starts(study, space, search.tell)
        study.set_user_attr(READY, os.getpid())


def _is_retry(one: Record) -> bool:
    """Return whether a trial waits to be repeated: its worker died, or the user asked for it."""
    return one.state is TrialState.WAITING and (one.history > 0 or AGAIN in one.attributes)
