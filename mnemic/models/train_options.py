"""How to train."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from mnemic.errors import Issue, UsageError, format_issue

_FREE = {"steps", "time_limit", "eval_every", "stop_at", "threads", "compiled"}


@dataclass(frozen=True)
class TrainOptions:
    """The options of `mnemic.models.train.train`.

    The defaults are tuned for `mqar` as published, learned by two layers of gated delta rule of
    dim 64 on one CPU core.

    Args:
        steps: batches to learn from, at least 1.
        batch: sequences in a batch, at least 1.
        lr: the largest learning rate, above 0.
        warmup: steps over which the rate rises to ``lr``, at least 0; a cosine then takes it
            to a tenth of ``lr`` at the last step.
        weight_decay: AdamW's, at least 0; on matrices alone, not on vectors.
        clip: the largest norm of the gradient, above 0; None does not clip.
        seed: of the batches, in [0, 2**62); the model's initial values are its maker's.
        eval_every: steps between evaluations (and checkpoints), at least 1.
        eval_size: held-out sequences of an evaluation, at least 1; always the same ones.
        time_limit: in seconds, over all resumed parts, above 0; None for no limit.
        stop_at: the held-out metric at which to stop early; None never does.
        threads: of torch on the CPU, at least 1.
        device: of torch: ``cpu``, ``cuda``, ...
        compiled: whether training steps run under torch.compile, which takes up to minutes once,
            and then less time a step; only rounding differs. Evaluations run as they are. What of
            a step is compiled, `mnemic.models.compiled.compiled_hidden` tells.

    Raises:
        UsageError: values out of range; all of them are named.
    """

    steps: int = 1000
    batch: int = 64
    lr: float = 3e-3
    warmup: int = 50
    weight_decay: float = 0.1
    clip: float | None = 1.0
    seed: int = 0
    eval_every: int = 100
    eval_size: int = 512
    time_limit: float | None = None
    stop_at: float | None = None
    threads: int = 1
    device: str = "cpu"
    compiled: bool = False

    def __post_init__(self) -> None:
        ranges = {
            "at least 1": ("steps", "batch", "eval_every", "eval_size", "threads"),
            "at least 0": ("warmup", "weight_decay", "seed"),
            "above 0": ("lr", "clip", "time_limit"),
        }
        issues = [
            Issue(f"must be finite and {allowed}", name, str(getattr(self, name)))
            for allowed, names in ranges.items()
            for name in names
            if not _within(getattr(self, name), allowed)
        ]
        if issues:
            raise UsageError("\n".join(map(format_issue, issues)))

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.lr * (0.55 + 0.45 * math.cos(math.pi * min(1.0, done)))

    def identity(self) -> dict[str, Any]:
        """Return the options that a resumed run must share with its first part."""
        return {name: value for name, value in asdict(self).items() if name not in _FREE}


def _within(value: float | None, allowed: str) -> bool:
    """Return whether a value is None, or finite and in the allowed range."""
    if value is None:
        return True
    least = 1 if allowed == "at least 1" else 0
    enough = value > least or (value == least and allowed.startswith("at"))
    return enough and math.isfinite(value)
