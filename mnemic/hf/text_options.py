"""How to train a language model on text."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from mnemic.errors import Issue, UsageError, format_issue, nearest

METHODS = ("adamw", "muon")
PRECISIONS = ("float32", "bfloat16")

_FREE = {"eval_every", "time_limit", "threads", "tensorboard"}
"""What a resumed run may change: it does not touch what is learned."""


@dataclass(frozen=True)
class TextOptions:
    """The options of `mnemic.hf.train.train`.

    Args:
        steps: of the optimizer, at least 1.
        batch: rows a step and device, at least 1.
        accumulate: passes of ``batch`` rows a step, at least 1.
        length: tokens of a row, at least 2.
        lr: the largest learning rate, above 0.
        warmup: steps over which it rises to ``lr``; a cosine then takes it to a tenth.
        weight_decay: at least 0; on matrices alone.
        clip: the largest norm of the gradient, above 0.
        optimizer: ``adamw``, or ``muon`` for matrices.
        precision: ``float32``, or ``bfloat16`` by autocast; states stay in float32.
        checkpointing: whether activations are computed again on the way back, to save memory.
        compiled: whether the model runs under torch.compile.
        seed: of the order of rows.
        eval_every: steps between evaluations, which save, at least 1.
        time_limit: in seconds, of this part of the run; None for none.
        threads: of torch, at least 1.
        tensorboard: whether to write logs for TensorBoard, which must be installed.
        sharded: whether weights, gradients and the optimizer's state are cut across processes.
        sequence_parallel: processes that share each row, at least 1.

    Raises:
        UsageError: values out of range; all of them are named.
    """

    steps: int = 1000
    batch: int = 8
    accumulate: int = 1
    length: int = 256
    lr: float = 3e-3
    warmup: int = 50
    weight_decay: float = 0.1
    clip: float = 1.0
    optimizer: str = "adamw"
    precision: str = "float32"
    checkpointing: bool = False
    compiled: bool = False
    seed: int = 0
    eval_every: int = 100
    time_limit: float | None = None
    threads: int = 1
    tensorboard: bool = False
    sharded: bool = False
    sequence_parallel: int = 1

    def __post_init__(self) -> None:
        least = {"steps": 1, "batch": 1, "accumulate": 1, "length": 2, "warmup": 0, "seed": 0,
                 "weight_decay": 0, "eval_every": 1, "threads": 1,
                 "sequence_parallel": 1}  # fmt: skip
        wrong = [
            Issue(f"must be finite and at least {low}", name, str(getattr(self, name)))
            for name, low in least.items()
            if not low <= getattr(self, name) < math.inf
        ]
        wrong += [
            Issue("must be finite and above 0", name, str(getattr(self, name)))
            for name in ("lr", "clip", "time_limit")
            if getattr(self, name) is not None and not 0 < getattr(self, name) < math.inf
        ]
        for name, allowed in (("optimizer", METHODS), ("precision", PRECISIONS)):
            found = getattr(self, name)
            if found not in allowed:
                wrong.append(Issue("", name, found, allowed, nearest(found, allowed)))
        if self.sharded and self.optimizer == "muon":
            told = "turns whole matrices, and --shard leaves a process a part of each"
            wrong.append(Issue(told, "optimizer", "muon", ("adamw",)))
        for name, option in (("checkpointing", "--checkpointing"), ("compiled", "--compile")):
            if self.sequence_parallel > 1 and getattr(self, name):
                wrong.append(Issue("not with --sequence-parallel", option))
        if wrong:
            raise UsageError("\n".join(map(format_issue, wrong)))

    @property
    def tokens(self) -> int:
        """Tokens a step and device."""
        return self.batch * self.accumulate * self.length // self.sequence_parallel

    def identity(self) -> dict[str, Any]:
        """Return the options that a resumed run must share with its first part."""
        return {name: x for name, x in asdict(self).items() if name not in _FREE}
