"""One training run, identified by spec, task, budget and seed: done once, and resumable."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import time
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import rfc8785

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.spec import Spec
from mnemic.models.curve import Point
from mnemic.models.device import CPU, Place, bound_memory, name_of
from mnemic.models.files import claim, write_json
from mnemic.search.space.checks import trained
from mnemic.search.space.settings import Model, TaskEntry, Training

NAME: Final = "run.json"
FORECAST: Final = 6
"""Steps after which the time of all is told."""

COMPILED: Final = ", compiled"
"""What stands behind a device whose times are those of torch.compile."""

POINTS: Final = 5
"""Evaluations of a run, and so checkpoints."""


@dataclass(frozen=True)
class Budget:
    """The settings common to all specs: the model, the training and the steps."""

    model: Model
    training: Training
    steps: int


@dataclass(frozen=True)
class Job:
    """A training run to be done.

    Args:
        spec: of the memories.
        task: to be learned, by name.
        entry: how hard the task is.
        size: a rung of the task that overrides the entry's.
        budget: the model, the training and the steps.
        seed: of the parameters and the batches.
        place: where it is trained, on which nothing but rounding and time depends.
    """

    spec: Spec
    task: str
    entry: TaskEntry
    size: str | None
    budget: Budget
    seed: int
    place: Place = Place()

    @property
    def identity(self) -> dict[str, Any]:
        """All that the result of a run depends on, as plain data."""
        from mnemic.models.result import described

        return {
            "spec": spec_hash(self.spec),
            "task": described(trained(self.task, self.entry, self.size)),
            "model": self.budget.model.model_dump(mode="json"),
            "training": self.budget.training.model_dump(mode="json"),
            "steps": self.budget.steps,
            "seed": self.seed,
        }

    @property
    def key(self) -> str:
        """The SHA-256 of the identity, shortened to 32 digits."""
        return sha256(rfc8785.dumps(self.identity)).hexdigest()[:32]


@dataclass(frozen=True)
class Run:
    """A training run that was done.

    Args:
        score: the task's metric on held-out sequences.
        skill: the score on the way from chance (0) to the ceiling (1).
        seconds: of the training, evaluations included.
        step_seconds: the median of a training step.
        curve: (step, score) of each evaluation.
        key: of the job, which tells all that the run depends on; empty in older files.
        device: that the steps were timed on: ``cpu``, or the name of a GPU; with ``, compiled``
            behind it where they ran under torch.compile.
    """

    task: str
    seed: int
    score: float
    skill: float
    seconds: float
    step_seconds: float
    curve: tuple[tuple[int, float], ...]
    key: str = ""
    device: str = CPU


def run(job: Job, folder: Path, seconds: float = math.inf) -> Run:
    """Do a training run, or load its stored result; resume from its checkpoint if there is one.

    Raises:
        TooLong: judging by its first steps, it would train for more than ``seconds``.
        CheckFailed: a loss, gradient or score is not finite.
        InvalidSpec, UsageError: the spec cannot be run on this task, or at these sizes.
    """
    from filelock import FileLock

    place = folder / job.key[:2] / job.key
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        found = stored(place)
        if found is None:
            found = _trained(job, place, Clock(seconds))
            write_json(place / NAME, {**asdict(found), "identity": job.identity})
    return found


def stored(place: Path) -> Run | None:
    """Load the result of a run from its folder, if it was completed."""
    if not (place / NAME).is_file():
        return None
    found = {"key": place.name, **json.loads((place / NAME).read_text(encoding="utf-8"))}
    curve = tuple((int(step), float(score)) for step, score in found.pop("curve"))
    return Run(curve=curve, **{key: found[key] for key in Run.__dataclass_fields__ if key in found})


def _trained(job: Job, place: Path, clock: Clock) -> Run:
    from mnemic import pipeline
    from mnemic.models.language_model import ModelOptions, build
    from mnemic.models.parts import keep_share
    from mnemic.models.train import CHECKPOINT, train
    from mnemic.models.train_options import TrainOptions

    task, budget = trained(job.task, job.entry, job.size), job.budget
    compiled = pipeline.compile(job.spec)
    kernel, device = job.spec.block.feed_forward, job.place.device
    bound_memory(job.place)
    _compile_alone(job.place)
    shape = ModelOptions(task.vocabulary, **dict(budget.model), feed_forward=kernel)
    model = build(shape, lambda dim, _: compiled.layer(dim), job.seed)
    keep_share(model, job.place.memory)
    every = math.ceil(budget.steps / POINTS)
    told = TrainOptions(
        steps=budget.steps,
        seed=job.seed,
        eval_every=every,
        device=device,
        compiled=job.place.compiled,
        **dict(budget.training),
    )
    claim(place)
    result = train(model, task, told, place, clock, metadata={"hash": spec_hash(job.spec)},
                   existing="resume", picture=False)  # fmt: skip
    assert result.score is not None
    (place / CHECKPOINT).unlink()
    return Run(
        job.task, job.seed, result.score, task.skill(result.score), result.seconds,
        clock.median(result.seconds / max(1, result.steps)), _curve(place), job.key,
        name_of(device) + (COMPILED if job.place.compiled else ""),
    )  # fmt: skip


def _compile_alone(place: Place) -> None:
    """Keep torch.compile from starting its own processes on a CPU, whose cores other runs use."""
    if place.compiled and place.device == CPU:
        import torch._inductor.config as inductor

        inductor.compile_threads = 1


def _curve(place: Path) -> tuple[tuple[int, float], ...]:
    import csv

    with (place / "curve.csv").open(encoding="utf-8") as file:
        return tuple((int(row["step"]), float(row["score"])) for row in csv.DictReader(file))


def forget(folder: Path, key: str) -> None:
    """Delete a run's folder."""
    shutil.rmtree(folder / key[:2] / key, ignore_errors=True)


class TooLong(Exception):
    """Raised where a run would exceed its time limit."""


class Clock:
    """A `mnemic.models.progress.Progress` that times each step.

    Once the first `FORECAST` steps are over, a run that would train for more than ``allowed``
    seconds is ended by `TooLong`.
    """

    def __init__(self, allowed: float = math.inf) -> None:
        self.allowed = allowed
        self.times: list[float] = []
        self.last: float | None = None
        self.left = 0

    def start(self, steps: int, done: int) -> None:
        """Start the clock: the first step begins."""
        self.left = steps - done
        self.last = time.perf_counter()

    def step(self, done: int, loss: float) -> None:
        """Record the time of a finished step; after `FORECAST` steps, forecast the whole run."""
        now = time.perf_counter()
        if self.last is not None:
            self.times.append(now - self.last)
        self.last = now
        if len(self.times) == FORECAST:
            self._forecast()

    def _forecast(self) -> None:
        each = statistics.median(self.times)
        if each * self.left > self.allowed:
            raise TooLong(
                f"would take about {each * self.left:.0f} s of {self.allowed:g} s allowed: "
                f"{self.left} steps of {each:.2g} s"
            )

    def evaluated(self, point: Point) -> None:
        """Restart the clock: the next step begins after the evaluation."""
        self.last = time.perf_counter()

    def end(self, stopped: str) -> None:
        """Ignore the end of the training."""

    def median(self, otherwise: float) -> float:
        """Return the median step in seconds; ``otherwise`` where no step was seen."""
        return statistics.median(self.times) if self.times else otherwise
