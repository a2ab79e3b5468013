"""The tuner behind ``mnemic tune``: how a rule's kernels are best cut on this device at a shape.

From the model's choice it goes one step at a time - rows, block, warps, stages - to whatever is
faster. A cut that does not compile, does not fit or computes wrong numbers is dropped before it is
timed; those that are right are timed in turns with a cold cache. The winner is kept on disk
(``tuned``); where no cut is right that is kept too, and the fused form is then not used there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import torch

from . import tuned, verified, versions
from .configuration import Choices, Configuration
from .sequence import SequenceLayer
from .shapes import PURPOSES, Shape, Subject
from .timing import Step, Timer, on_device
from .trials import Trials
from .tuned import Answer, Question

MOST = 24
"""Cuts that are tried for one purpose."""

ROUNDS = 10
"""Times that each is measured."""

GAIN = 0.98
"""The share of the best time so far that a cut must stay under to be taken."""

NO_GPU = "no GPU here: there is nothing to time, and the model's choices stand"
NO_FORM = "this rule has no fused form"


@dataclass(frozen=True)
class Trial:
    """A cut that was tried: what is wrong with it, or its seconds when it was last timed."""

    configuration: Configuration
    wrong: str
    seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What was found for one purpose."""

    purpose: str
    question: Question
    model: Configuration
    answer: Answer
    trials: tuple[Trial, ...]

    @property
    def report(self) -> dict[str, Any]:
        """As plain data."""
        choice = self.answer.choice
        return {
            "purpose": self.purpose,
            "question": asdict(self.question),
            "model": asdict(self.model),
            "choice": None if choice is None else asdict(choice),
            "why": self.answer.why,
            "trials": [
                {**asdict(t.configuration), "wrong": t.wrong, "seconds": t.seconds}
                for t in self.trials
            ],
        }


def run(
    layer_type: type[SequenceLayer], shape: Shape, *, device: str | None = None,
    timer: Timer | None = None, purposes: tuple[str, ...] = PURPOSES, most: int = MOST,
    told: Callable[[Outcome], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Tune a compiled folder's rule for a shape, keep what was found, and report it.

    ``timer`` times calls (a GPU's events unless told; without a GPU there is nothing to time).
    """
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    found: dict[str, Any] = {
        "rule": layer_type.rule.name, "shape": str(shape), "setting": verified.setting(place),
        "note": "", "folder": str(tuned.root() / "tuned"), "tuned": [],
    }  # fmt: skip
    note = _nothing(layer_type, place, timer)
    if note:
        return found | {"note": note}
    subject = Subject(layer_type, shape, place)
    for purpose in purposes:
        outcome = tune(subject, purpose, timer or on_device, most)
        if outcome is None:
            found["note"] = f"{purpose}: no fused kernel runs at this shape"
            continue
        _keep(outcome, subject)
        found["tuned"].append(outcome.report)
        if told is not None:
            told(outcome)
    return found


def _nothing(layer_type: type[SequenceLayer], place: torch.device, timer: Timer | None) -> str:
    """Return why there is nothing to tune; empty where there is something."""
    if "triton" not in layer_type.rule.forms:
        return NO_FORM
    if place.type != "cuda" and timer is None:
        return NO_GPU
    return versions.unusable(place) or ""


def tune(subject: Subject, purpose: str, timer: Timer, most: int = MOST) -> Outcome | None:
    """Find the best cut for a purpose; ``None`` where no fused kernel runs."""
    with tuned.unread():
        asked = _asked(subject, purpose)
        if asked is None:
            return None
        search = Search(Trials(subject, purpose, asked.question), subject.step(purpose), timer)
        return search.run(asked.model, asked.choices, most)


def _asked(subject: Subject, purpose: str) -> tuned.Run | None:
    """Return the kernel that a call runs as the model cuts it: the gradient's, where it has one.

    A cut that does not compile has told by then which it is.
    """
    with tuned.recording() as seen:
        try:
            subject.step(purpose)()
        except torch.OutOfMemoryError:
            raise
        except versions.failures():
            pass
    mine = [run for run in seen if run.question.gradient == (purpose == "training")]
    return mine[-1] if mine else None


class Search:
    """Steps from the model's choice to whatever is faster, of cuts that are right alone."""

    def __init__(self, trials: Trials, step: Step, timer: Timer) -> None:
        self.trials, self.step, self.timer = trials, step, timer
        self.wrong: dict[Configuration, str] = {}
        self.seconds: dict[Configuration, float] = {}

    def run(self, model: Configuration, choices: Choices, most: int) -> Outcome:
        """Search until no neighbour is faster, or so many were tried."""
        best: Configuration | None = None
        wave = [model, *choices.around(model)]
        while wave:
            for cut in wave[: most - len(self.wrong)]:
                self.wrong[cut] = self.trials.wrong(cut)
            right = [cut for cut in wave if self.wrong.get(cut) == ""]
            following = self._fastest(best, right)
            if following == best or following is None:
                break
            best = following
            wave = [cut for cut in choices.around(best) if cut not in self.wrong]
            wave = wave if len(self.wrong) < most else []
        tried = tuple(Trial(c, w, self.seconds.get(c)) for c, w in self.wrong.items())
        why = "" if best is not None else next(iter(self.wrong.values()))
        return Outcome(self.trials.purpose, self.trials.question, model, Answer(best, why), tried)

    def _fastest(
        self, best: Configuration | None, right: list[Configuration]
    ) -> Configuration | None:  # fmt: skip
        """Time the best so far and others; return the fastest, if it clearly beats the first."""
        held = [*([] if best is None else [best]), *right]
        if not right:
            return best
        steps = {number: self._forced(cut) for number, cut in enumerate(held)}
        times = self.timer(steps, ROUNDS)
        self.seconds |= {cut: times[number] for number, cut in enumerate(held)}
        quickest = min(held, key=self.seconds.__getitem__)
        return quickest if self.seconds[quickest] < GAIN * self.seconds[held[0]] else held[0]

    def _forced(self, cut: Configuration) -> Step:
        """Return the call, cut so."""

        def step() -> object:
            with tuned.forcing(self.trials.question, cut):
                return self.step()

        return step


def _keep(outcome: Outcome, subject: Subject) -> None:
    told: Mapping[str, Any] = {
        "rule": subject.rule.name,
        "shape": str(subject.shape),
        "purpose": outcome.purpose,
        "date": datetime.now(tz=UTC).date().isoformat(),
        "model": asdict(outcome.model),
        "seconds": {t.seconds: asdict(t.configuration) for t in outcome.trials if t.seconds},
    }
    tuned.store(outcome.question, subject.device, outcome.answer, told)


def none_right(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the purposes for which no cut is right."""
    return tuple(entry["purpose"] for entry in report["tuned"] if entry["choice"] is None)


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a report in words, line by line."""
    yield f"{report['rule']}: {report['shape']}"
    for entry in report["tuned"]:
        timed = {_cut(t): t["seconds"] for t in entry["trials"] if t["seconds"] is not None}
        wrong = [t for t in entry["trials"] if t["wrong"]]
        model, choice = _cut(entry["model"]), entry["choice"]
        tried = f"{len(entry['trials'])} tried, {len(wrong)} wrong"
        if choice is None:
            yield f"  {entry['purpose']:<9} none is right ({tried}): {entry['why']}"
            continue
        best = f"{1e6 * timed[_cut(choice)]:.1f} us"
        beside = f", the model's {model} {1e6 * timed[model]:.1f} us" if model in timed else ""
        same = " as the model chose" if _cut(choice) == model else beside
        yield f"  {entry['purpose']:<9} {_cut(choice)}: {best}{same}; {tried}"
        yield from (f"    dropped {_cut(t)}: {t['wrong']}" for t in wrong)
    if report["note"]:
        yield report["note"]


def _cut(entry: Mapping[str, Any]) -> str:
    return (
        f"{entry['rows']} rows, blocks of {entry['block']}, {entry['warps']} warps, "
        f"{entry['stages']} stages"
    )
