"""Some hundred steps on MQAR and on bytes: whether a rule's layer trains, its loss falling.

One block of 32 channels in four heads, batches of 16: two pairs of eight values in 32 tokens for
MQAR, queried at any distance, and 64 bytes of the standard library's sources for bytes. On MQAR the
loss of a block that remembers nothing does not fall below ln 8; on bytes most of the decrease comes
from knowing the last byte.
"""

import math
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from mnemic.errors import CheckFailed
from mnemic.pipeline import Compiled

STEPS: Final = 200
TASKS: Final[dict[str, dict[str, object]]] = {
    "mqar": {"pairs": 2, "length": 32, "vocabulary": 16, "power": 1.0},
    "bytes": {"length": 64},
}
DIM, HEADS, BATCH, ENDS = 32, 4, 16, 10
FALLEN: Final = 0.9
"""The last losses over the first ones, at most."""
BLIND: Final = math.log(8)
"""The loss on MQAR of knowing the values alone, and not which one belongs to a key."""
CONTROL: Final = 1.6
"""About the least that memories with a decay of 1e-6 came to in 200 steps: 2.09 under the dot loss,
1.56 under l2."""


def run(compiled: Compiled, steps: int = STEPS) -> dict[str, Any]:
    """Return, by task, the mean of the first and last ``ENDS`` losses, in nats, and the seconds.

    ``last`` is NaN, and ``reason`` beside it, where the loss was no longer finite.
    """
    return {task: _trained(compiled, task, steps) for task in TASKS}


def _trained(compiled: Compiled, name: str, steps: int) -> dict[str, Any]:
    from mnemic.models.language_model import ModelOptions, build
    from mnemic.models.train import train
    from mnemic.models.train_options import TrainOptions
    from mnemic.search.tasks import get

    task = get(name).configure(TASKS[name])
    options = ModelOptions(task.vocabulary, dim=DIM, layers=1)
    model = build(options, lambda dim, index: compiled.layer(dim, heads=HEADS), seed=0)
    began, seen, failed = time.perf_counter(), _Losses(), dict[str, Any]()
    told = TrainOptions(steps=steps, batch=BATCH, eval_every=steps, eval_size=BATCH)
    with tempfile.TemporaryDirectory() as folder:
        try:
            train(model, task, told, Path(folder) / "run", seen)
        except CheckFailed as failure:
            failed = {"last": math.nan, "reason": str(failure)}
    first, last = _mean(seen.losses[:ENDS]), _mean(seen.losses[-ENDS:])
    spent = time.perf_counter() - began
    return {"first": first, "last": last, "seconds": spent, **failed}


def _mean(losses: list[float]) -> float:
    return sum(losses) / len(losses) if losses else math.nan


class _Losses:
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def start(self, *args: Any, **kwargs: Any) -> None:
        """Ignore the start of a run."""

    def step(self, step: int, loss: float) -> None:
        """Keep the loss of one step."""
        self.losses.append(loss)

    def evaluated(self, *args: Any, **kwargs: Any) -> None:
        """Ignore an evaluation."""

    def end(self, *args: Any, **kwargs: Any) -> None:
        """Ignore the end of a run."""
