"""Some hundred steps on MQAR and on bytes: whether a rule's layer trains, its loss falling.

One block of 32 channels and one head, batches of 16: four pairs in 32 tokens for MQAR, 64 bytes of
the standard library's sources for bytes.
"""

import tempfile
import time
from pathlib import Path
from typing import Any, Final

from mnemic.pipeline import Compiled

STEPS: Final = 200
TASKS: Final[dict[str, dict[str, object]]] = {
    "mqar": {"pairs": 4, "length": 32, "vocabulary": 64},
    "bytes": {"length": 64},
}
DIM, BATCH, ENDS = 32, 16, 10
FALLEN: Final = 0.9
"""The last losses over the first ones, at most."""


def run(compiled: Compiled, steps: int = STEPS) -> dict[str, Any]:
    """By task the mean of the first and of the last ``ENDS`` losses, in nats, and the seconds."""
    return {task: _trained(compiled, task, steps) for task in TASKS}


def _trained(compiled: Compiled, name: str, steps: int) -> dict[str, float]:
    from mnemic.models.language_model import ModelOptions, build
    from mnemic.models.train import train
    from mnemic.models.train_options import TrainOptions
    from mnemic.search.tasks import get

    task = get(name).configure(TASKS[name])
    options = ModelOptions(task.vocabulary, dim=DIM, layers=1)
    model = build(options, lambda dim, index: compiled.layer(dim, heads=1), seed=0)
    began, seen = time.perf_counter(), _Losses()
    with tempfile.TemporaryDirectory() as folder:
        told = TrainOptions(steps=steps, batch=BATCH, eval_every=steps)
        train(model, task, told, Path(folder) / "run", seen)
    first, last = sum(seen.losses[:ENDS]) / ENDS, sum(seen.losses[-ENDS:]) / ENDS
    return {"first": first, "last": last, "seconds": time.perf_counter() - began}


class _Losses:
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def start(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to tell."""

    def step(self, step: int, loss: float) -> None:
        """One step's loss."""
        self.losses.append(loss)

    def evaluated(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to tell."""

    def end(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to tell."""
