"""Small models of one spec, trained on a task several times: curves of held-out scores."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mnemic.claims.numbers import mean, spread
from mnemic.claims.outcome import Curve
from mnemic.errors import CheckFailed
from mnemic.models.contract import IGNORED
from mnemic.models.curve import Point
from mnemic.models.language_model import LanguageModel
from mnemic.models.progress import Silent


@dataclass(frozen=True)
class Budget:
    """How a model of a claim is made and trained: sizes, steps, and the most seconds of one run."""

    steps: int = 1000
    layers: int = 1
    dim: int = 64
    heads: int | None = None
    batch: int = 64
    lr: float = 3e-3
    every: int = 100
    seconds: float = 900.0
    feed_forward: str = "swiglu"
    block: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Learned:
    """Held-out scores of one run by step, and whether it was cut off by its time.

    ``elsewhere`` are the scores of the trained model on further tasks.
    """

    steps: tuple[int, ...]
    scores: tuple[float, ...]
    cut: bool = False
    elsewhere: tuple[float, ...] = ()

    @property
    def last(self) -> float:
        """The last held-out score; 0 where there is none."""
        return self.scores[-1] if self.scores else 0.0


def learned(
    spec: Any, task: Any, budget: Budget, seed: int, further: Sequence[Any] = ()
) -> Learned:
    """Train a model of a spec's layers on a task and return its held-out scores.

    ``further`` are tasks of the same vocabulary that the trained model is asked too.
    """
    from mnemic import pipeline
    from mnemic.models.language_model import ModelOptions, build
    from mnemic.models.train import train
    from mnemic.models.train_options import TrainOptions

    options = ModelOptions(
        task.vocabulary, dim=budget.dim, layers=budget.layers, feed_forward=budget.feed_forward
    )
    compiled = pipeline.compile(_with_block(pipeline.read(spec), budget.block))
    heads = {} if budget.heads is None else {"heads": budget.heads}
    model = build(options, lambda dim, index: compiled.layer(dim, **heads), seed=seed)
    told = TrainOptions(
        steps=budget.steps, batch=budget.batch, lr=budget.lr, seed=seed, eval_every=budget.every,
        eval_size=256, time_limit=budget.seconds, stop_at=0.9995,
    )  # fmt: skip
    seen = _Scores()
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = train(model, task, told, Path(folder) / "run", seen, picture=False)
        except CheckFailed:
            return Learned(tuple(seen.steps), tuple(seen.scores), cut=True)
    elsewhere = tuple(score(model, other, budget.batch) for other in further)
    return Learned(tuple(seen.steps), tuple(seen.scores), result.stopped == "time", elsewhere)


@torch.no_grad()
def score(model: LanguageModel, task: Any, batch: int, rounds: int = 16) -> float:
    """Return a trained model's score on held-out sequences of a task without a decoder."""
    model.eval()
    generator = task.generator(0, "test")
    found = list[float]()
    for _ in range(rounds):
        told = task.batch(generator, batch, "test")
        scored = told.targets != IGNORED
        hidden, _ = model.hidden(told.inputs)
        found.append(task.score(model.head(hidden[scored]), told.targets[scored]))
    return mean(found)


def _with_block(spec: Any, changes: Mapping[str, Any]) -> Any:
    return spec.model_copy(update={"block": spec.block.model_copy(update=dict(changes))})


class _Scores(Silent):
    """Keeps the held-out score of every evaluation."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.scores: list[float] = []

    def evaluated(self, point: Point) -> None:
        """Keep the step and the score of one evaluation."""
        self.steps.append(point.step)
        self.scores.append(point.score)


def curve(label: str, runs: list[Learned]) -> Curve:
    """Return the mean score by step of several runs; one that stopped keeps its last score."""
    steps = max((run.steps for run in runs), key=len, default=())
    columns = [[run.scores[min(i, len(run.scores) - 1)] for run in runs if run.scores]
               for i in range(len(steps))]  # fmt: skip
    return Curve(label, tuple(map(float, steps)), tuple(map(mean, columns)),
                 tuple(map(spread, columns)))  # fmt: skip
