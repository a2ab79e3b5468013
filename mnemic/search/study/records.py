"""Stored trials: the results of each point, in the attributes of Optuna's trials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from optuna.trial import FrozenTrial, TrialState

from mnemic.search.study.storage import RETRIES
from mnemic.search.study.training import Run

KIND, WHY, LOOK, SPEC, SAME, START = "kind", "why", "look", "spec", "same_as", "start"
"""Names of attributes of a trial."""
AGAIN: Final = "again"
"""The attribute of a trial that is another once more, which found nothing: that one's number."""
WORKER: Final = "worker"
"""The attribute that tells the process that does the trial."""
LOOKED: Final = "looked"
"""The attribute of the seconds that deriving, compiling and building took."""
RUNG: Final = "rung:"
MARK: Final = "mnemic"
"""The attribute of a study that tells the identity of its space."""

FINISHED, STOPPED, COSTLY, INVALID = "finished", "stopped", "over budget", "invalid"
DUPLICATE, INTERRUPTED, FAILED, CRASHED = "duplicate", "interrupted", "failed", "crashed"
UNCOUNTED: Final = frozenset({DUPLICATE, INVALID, INTERRUPTED, CRASHED})
"""Ends of a trial that do not count against the number of trials."""
LEFT_OUT: Final = frozenset({DUPLICATE, FAILED, INTERRUPTED, CRASHED})
"""Ends of a trial that found nothing of its rule."""


@dataclass(frozen=True)
class Record:
    """The stored record of one trial.

    Args:
        number: of the trial in its study.
        kind: how it ended: ``finished``, ``stopped`` (at a rung), ``over budget``, ``invalid``,
            ``duplicate``, ``failed`` (memory, time, not finite), ``crashed``, ``interrupted``;
            None while it runs or waits, or where its worker died.
        state: Optuna's.
        answers: to the space's choices.
        attributes: all that was found.
        values: of the objectives, where it finished.
        history: how often its worker died.
    """

    number: int
    kind: str | None
    state: TrialState
    answers: dict[str, Any]
    attributes: dict[str, Any]
    values: tuple[float, ...] | None
    history: int = 0

    @property
    def counts(self) -> bool:
        """Whether the trial counts towards the number of trials that the space asks for."""
        match self.state:
            case TrialState.RUNNING:
                return True
            case TrialState.WAITING:
                return False
        if self.kind is None:  # its worker died: the retry counts, if there is one
            return self.history >= RETRIES
        return self.kind not in UNCOUNTED

    @property
    def identity(self) -> str | None:
        """The identity of the derived rule; None where the point was not looked at."""
        found = self.attributes.get(LOOK)
        return None if found is None else str(found["identity"])

    @property
    def why(self) -> str:
        """The reason why the trial did not end well; else empty."""
        return str(self.attributes.get(WHY, ""))

    @property
    def rungs(self) -> dict[int, dict[str, Any]]:
        """What was found at each rung."""
        return {
            int(name.removeprefix(RUNG)): found
            for name, found in self.attributes.items()
            if name.startswith(RUNG)
        }

    def runs(self, rung: int) -> list[Run]:
        """Return the training runs of a rung."""
        return [run_of(told) for told in self.rungs.get(rung, {}).get("runs", ())]


def record(trial: FrozenTrial) -> Record:
    """Return the record of a trial as Optuna keeps it."""
    return Record(
        number=trial.number,
        kind=trial.user_attrs.get(KIND),
        state=trial.state,
        answers=dict(trial.params),
        attributes=dict(trial.user_attrs),
        values=None if trial.values is None else tuple(trial.values),
        history=len(trial.system_attrs.get("retry_history", ())),
    )


def run_of(told: dict[str, Any]) -> Run:
    """Return the run that was stored as plain data."""
    curve = tuple((int(step), float(score)) for step, score in told["curve"])
    return Run(**{**told, "curve": curve})


def training_seconds(records: Iterable[Record]) -> float:
    """Return the seconds of all training runs; a run that several rungs or trials share once."""
    every = (run for one in records for rung in one.rungs for run in one.runs(rung))
    runs = {(run.task, run.seed, run.key, run.score, run.seconds) for run in every}
    return sum(seconds for *_, seconds in runs)


def distinct(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the first trial of every rule, failures and duplicates left out."""
    seen = set[str]()
    for one in records:
        known = one.identity
        if known is None or one.kind in LEFT_OUT or known in seen:
            continue
        if one.kind is None and one.state is TrialState.FAIL:
            continue
        seen.add(known)
        yield one


def replaced(records: Iterable[Record]) -> set[int]:
    """Return the numbers of the trials that were redone, or are queued to be."""
    return {int(one.attributes[AGAIN]) for one in records if AGAIN in one.attributes}


def counted(records: Sequence[Record]) -> int:
    """Count the trials towards the wanted number; a redone trial counts once."""
    gone = replaced(records)
    return sum(one.counts and one.number not in gone for one in records)
