"""One trial: from a point that the sampler proposes to the values told to the study."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial, TrialState

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec
from mnemic.dsl.writing import short
from mnemic.errors import InvalidSpec
from mnemic.search.space.choices import Answer, Choice, Choose
from mnemic.search.space.preview import reason_of
from mnemic.search.space.settings import COSTS, Rung, Settings
from mnemic.search.study import work
from mnemic.search.study.halving import goes_on
from mnemic.search.study.isolated import Bounds, Failure, isolated
from mnemic.search.study.records import (
    AGAIN,
    COSTLY,
    CRASHED,
    DUPLICATE,
    FAILED,
    FINISHED,
    INTERRUPTED,
    INVALID,
    KIND,
    LOOK,
    LOOKED,
    RUNG,
    SAME,
    SPEC,
    STOPPED,
    WHY,
    Record,
    distinct,
    run_of,
)
from mnemic.search.study.scores import measured
from mnemic.search.study.search import Search
from mnemic.search.study.training import Run

T = TypeVar("T")

DROPPED: Final = "dropped"
"""The end of a trial that is no longer this worker's; the study does not hear of it."""


@dataclass(frozen=True)
class End:
    """How a trial ended; ``values`` of the objectives where it finished."""

    kind: str
    why: str = ""
    values: tuple[float, ...] | None = None


class Ended(Exception):
    """Raised to end a trial early."""

    def __init__(self, end: End) -> None:
        super().__init__(end.kind)
        self.end = end


def do(search: Search, trial: Trial) -> End:
    """Do a trial and report it to the study; an interrupted one is requeued.

    A trial is dropped if this worker was considered dead and another has ended it meanwhile.
    """
    try:
        try:
            end = _Trial(search, trial).to_the_end()
        except Ended as early:
            end = early.end
        if end.kind == INTERRUPTED:
            search.put_back(trial)
        else:
            _tell(search, trial, end)
    except UpdateFinishedTrialError:
        return End(DROPPED, "another worker has ended it meanwhile")
    return end


def _tell(search: Search, trial: Trial, end: End) -> None:
    trial.set_user_attr(KIND, end.kind)
    if end.why:
        trial.set_user_attr(WHY, end.why)
    if end.values is not None:
        search.study.tell(trial, list(end.values), skip_if_finished=True)
        return
    state = TrialState.FAIL if end.kind in (FAILED, CRASHED) else TrialState.PRUNED
    search.study.tell(trial, state=state, skip_if_finished=True)


class _Trial:
    """A trial in progress; results are stored at once."""

    def __init__(self, search: Search, trial: Trial) -> None:
        self.search, self.trial = search, trial
        self.settings: Settings = search.space.settings
        self.log = search.folder / "logs" / f"trial-{trial.number}.log"
        self.began = time.monotonic()

    def to_the_end(self) -> End:
        spec = self.spec()
        seen = self.look(spec)
        self.known_before(seen["identity"])
        self.within_budget(seen)
        runs: list[Run] = []
        for index, rung in enumerate(self.settings.rungs):
            last = index + 1 == len(self.settings.rungs)
            if rung.untrained is None:
                runs = self.trained(spec, index, rung)
            values = self.losses(seen, runs)
            self.keep(f"{RUNG}{index}", self.read_rung(index) | {"values": values})
            if not last and not self.goes_on(index, values, seen["identity"], rung.keep):
                raise Ended(End(STOPPED, f"at rung {index + 1} of {len(self.settings.rungs)}"))
        return End(FINISHED, values=self.objectives(seen, runs))

    def spec(self) -> Spec:
        """Return the point that the sampler chooses."""
        try:
            point = self.search.space.point(self.suggest)
        except InvalidSpec as error:
            why = reason_of(error, self.search.space.name)
            raise Ended(End(INVALID, why)) from None
        name = f"{self.search.space.name[:55]}-{spec_hash(point.spec)[:8]}"
        spec = point.spec.model_copy(update={"name": name, "title": None, "source": None,
                                             "notes": None, "published": ()})  # fmt: skip
        self.keep(SPEC, short(spec))
        return load(short(spec))

    def suggest(self, name: str, choice: Choice) -> Answer:
        """Ask the sampler for the answer to a choice."""
        if isinstance(choice, Choose):
            return self.trial.suggest_categorical(name, choice.labels)
        if choice.integral:
            step = int(choice.step or 1)
            return self.trial.suggest_int(
                name, int(choice.low), int(choice.high), step=step, log=choice.log
            )
        return self.trial.suggest_float(
            name, choice.low, choice.high, step=choice.step, log=choice.log
        )

    def look(self, spec: Spec) -> dict[str, Any]:
        """Return what is known of a spec without training; computed once, then read back."""
        kept: dict[str, Any] | None = self.trial.user_attrs.get(LOOK)
        if kept is not None:
            return kept
        first = self.settings.rungs[0]
        rung = first if first.untrained is not None else None
        began = time.monotonic()
        seen: dict[str, Any] = asdict(self.isolated(work.look, spec, self.settings, rung))
        self.keep(LOOK, seen)
        self.keep(LOOKED, time.monotonic() - began)
        return seen

    def known_before(self, identity: str) -> None:
        """Raise Ended where the same rule was tried before; copy its results to this trial.

        A crash may have been the machine's fault, so it does not count. A trial that is redone
        does not take over a failure.
        """
        others = (r for r in self.search.records() if r.number < self.trial.number)
        alike = [r for r in others if r.identity == identity]
        crashed = [r for r in alike if r.kind == CRASHED]
        again = AGAIN in self.trial.user_attrs
        same = next((r for r in alike if self.settled(r, again)), None)
        if same is None and len(crashed) > 1 and not again:
            why = f"the rule of trials {crashed[0].number} and {crashed[1].number}, which crashed"
            raise Ended(End(DUPLICATE, why))
        if same is None:
            return
        self.keep(SAME, same.number)
        for index, found in same.rungs.items():
            self.keep(f"{RUNG}{index}", found)
        if same.kind == COSTLY:
            self.constrain(same.attributes[LOOK])
        raise Ended(End(DUPLICATE, f"the rule of trial {same.number}", same.values))

    @staticmethod
    def settled(other: Record, again: bool) -> bool:
        """Return whether a trial's end would be the same for any trial of the same rule."""
        return other.kind in (FINISHED, STOPPED, COSTLY) or (other.kind == FAILED and not again)

    def within_budget(self, seen: Mapping[str, Any]) -> None:
        """Raise Ended where a cost is above its bound; the sampler learns by how much."""
        over = self.constrain(seen)
        if over:
            raise Ended(End(COSTLY, "; ".join(over)))

    def constrain(self, seen: Mapping[str, Any]) -> list[str]:
        """Report the constraints to the sampler; return those that are broken, in words."""
        over, told = [], self.trial.constraints  # by an earlier try of the same trial
        for name, bound in self.search.bounds.items():
            if name not in told:
                self.trial.set_constraint(name, seen[name] / bound - 1)
            if seen[name] > bound:
                over.append(f"{name} {seen[name]:g}, at most {bound:g}")
        return over

    def trained(self, spec: Spec, index: int, rung: Rung) -> list[Run]:
        """Return the runs of a rung; train them unless they are stored."""
        kept = self.read_rung(index)
        if "runs" not in kept:
            runs = self.isolated(work.train_rung, spec, self.settings, rung, self.search.runs)
            kept = {"runs": [asdict(run) for run in runs], "steps": rung.steps,
                    "seconds": sum(run.seconds for run in runs)}  # fmt: skip
            self.keep(f"{RUNG}{index}", kept)
        return [run_of(told) for told in kept["runs"]]

    def losses(self, seen: Mapping[str, Any], runs: list[Run]) -> list[float]:
        """Return a rung's objectives, lower is better; an untrained rung's error replaces skill."""
        if not runs:
            costs = [float(seen[n]) for n in self.settings.objectives if n in COSTS and n in seen]
            return [float(seen["error"]), *costs]
        found = measured(runs, seen)
        return [found[n] if n in COSTS else -found[n] for n in self.settings.objectives]

    def objectives(self, seen: Mapping[str, Any], runs: list[Run]) -> tuple[float, ...]:
        found = measured(runs, seen)
        return tuple(found[name] for name in self.settings.objectives)

    def goes_on(self, index: int, values: list[float], identity: str, keep: float) -> bool:
        """Return whether the point is good enough for the next rung, among those at this one."""
        others = [
            one.rungs[index]["values"]
            for one in distinct(self.search.records())
            if index in one.rungs and "values" in one.rungs[index] and one.identity != identity
        ]
        return goes_on(values, others, keep)

    def read_rung(self, index: int) -> dict[str, Any]:
        """Return the stored results of a rung."""
        return dict(self.trial.user_attrs.get(f"{RUNG}{index}", {}))

    def keep(self, name: str, value: Any) -> None:
        """Store an attribute at once."""
        self.trial.set_user_attr(name, value)

    def isolated(self, function: Any, *arguments: Any) -> Any:
        """Call a function in its own process, within the rest of the trial's limits."""
        limits = self.settings.limits
        left = max(0.0, limits.seconds - (time.monotonic() - self.began))
        answer = isolated(function, *arguments, bounds=Bounds(left, limits.memory), log=self.log,
                          stopping=self.search.stopping)  # fmt: skip
        if not isinstance(answer, Failure):
            return answer.value
        match answer.kind:
            case "interrupted":
                raise Ended(End(INTERRUPTED))
            case "refused":
                raise Ended(End(INVALID, answer.why))
            case "time":
                whole = f"took more than {limits.seconds:g} s"
                raise Ended(End(FAILED, f"time: {whole}"))
            case "crash":
                raise Ended(End(CRASHED, answer.why))
        raise Ended(End(FAILED, f"{answer.kind}: {answer.why}"))
