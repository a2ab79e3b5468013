"""Monitor a training run: progress, limits, numbers that are no longer finite, Ctrl-C."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed
from transformers import TrainerCallback

from mnemic.errors import CheckFailed
from mnemic.models.curve import Point
from mnemic.models.progress import Progress

METRIC = "bits_per_byte"

REASONS = ("steps", "time", "interrupted")
"""Why a run may end; the later ones come first."""


class Follow(TrainerCallback):
    """Report every step to a progress display, and stop a run that should not continue.

    Args:
        progress: receives the steps and evaluations.
        time_limit: the limit in seconds; None for none.
        pressed: raises KeyboardInterrupt where Ctrl-C was pressed; the step is finished and saved.
    """

    def __init__(
        self, progress: Progress, time_limit: float | None, pressed: Callable[[], None]
    ) -> None:
        self.progress, self.time_limit, self.pressed = progress, time_limit, pressed
        self.stopped = "steps"
        self.began, self.before = time.monotonic(), 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **options: Any) -> None:
        """Start the bar, at the step from which the run goes on."""
        self.began = time.monotonic()
        self.before = max((entry.get("seconds", 0.0) for entry in state.log_history), default=0.0)
        self.progress.start(state.max_steps, state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any, **options: Any) -> None:
        """Move the bar; stop where a number is NaN or infinite.

        Raises:
            CheckFailed: one is; the checkpoint before it stays the last.
        """
        if "loss" not in logs:
            return
        told = {"loss": logs["loss"], "gradient's norm": logs.get("grad_norm", 0.0)}
        wrong = [f"{name} is {x}" for name, x in told.items() if not math.isfinite(x)]
        if wrong:
            raise CheckFailed(
                f"training: at step {state.global_step} the {' and the '.join(wrong)} (the last "
                "checkpoint is kept; a smaller --lr may help)"
            )
        self.progress.step(state.global_step, logs["loss"])

    def on_evaluate(self, args: Any, state: Any, control: Any, **options: Any) -> None:
        """Report the new point of the curve."""
        self.progress.evaluated(points(state.log_history)[-1])

    def on_step_end(self, args: Any, state: Any, control: Any, **options: Any) -> Any:
        """Stop with a checkpoint where the time is over or Ctrl-C was pressed."""
        try:
            self.pressed()
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        if self.time_limit is not None and self.seconds >= self.time_limit:
            self.stopped = "time"
        if args.world_size > 1:
            self.stopped = agreed(self.stopped, args.device)
        if self.stopped != "steps":
            control.should_save = control.should_training_stop = True
        return control

    @property
    def seconds(self) -> float:
        """Wall time of this part of the run."""
        return time.monotonic() - self.began

    @property
    def total(self) -> float:
        """Wall time of all parts of the run, up to the last evaluation of earlier ones."""
        return self.before + self.seconds


def agreed(why: str, device: torch.device) -> str:
    """Return the reason to stop if any process has one, so that none waits for the others."""
    found = torch.tensor(REASONS.index(why), device=device)
    distributed.all_reduce(found, distributed.ReduceOp.MAX)
    return REASONS[int(found)]


def points(history: list[dict[str, Any]]) -> list[Point]:
    """Return the learning curve from what a Trainer logged, step by step.

    The loss of a point is the mean over the steps since the last one.
    """
    found, losses, rate = [], [], 0.0
    for entry in history:
        if "loss" in entry:
            losses.append(entry["loss"])
            rate = entry["learning_rate"]
        elif f"eval_{METRIC}" in entry:
            mean = math.fsum(losses) / max(1, len(losses))
            score = entry[f"eval_{METRIC}"]
            found.append(Point(entry["step"], entry["seconds"], mean, score, rate))
            losses = []
    return found
