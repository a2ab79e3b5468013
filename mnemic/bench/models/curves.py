"""Byte models learned side by side: the same text, steps and rate, seed by seed.

The rate is constant after its warm-up, so that a curve may be read at any step and at any time.
Time is the processor's, of the steps alone.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemic.bench.models.subjects import make, parameters
from mnemic.bench.processes import python
from mnemic.errors import CheckFailed
from mnemic.hf.shape import Shape

STEPS: Final = 240
SEEDS: Final = (0, 1, 2)


@dataclass(frozen=True)
class Lesson:
    """What a model is taught.

    Args:
        steps: of AdamW.
        blocks, dim, heads: of the model; each block has a feed-forward.
        length, batch: bytes of a window, and windows a step.
        rate, warmup: reached after so many steps, and kept.
        every, held_out: steps between evaluations, on so many windows that are always the same.
    """

    steps: int = STEPS
    blocks: int = 4
    dim: int = 192
    heads: int = 3
    length: int = 256
    batch: int = 2
    rate: float = 2e-3
    warmup: int = 20
    every: int = 20
    held_out: int = 32

    @property
    def shape(self) -> Shape:
        """The shape of the model that is taught."""
        return Shape(self.blocks, self.dim, self.heads, vocabulary=256, length=self.length)

    def __str__(self) -> str:
        """Return the sizes on one line."""
        return (
            f"{self.blocks} blocks of {self.dim} channels, {self.heads} heads, bytes of the "
            f"standard library, {self.batch} windows of {self.length} a step, AdamW at "
            f"{self.rate:g} after {self.warmup} steps, {self.held_out} windows held out, float32"
        )


def run(name: str, seed: int, lesson: Lesson) -> dict[str, Any]:
    """Teach a model in a process of its own, and return its curve; see `learn`."""
    told = json.dumps({"name": name, "seed": seed, "lesson": asdict(lesson)})
    found: dict[str, Any] = json.loads(python("-m", __name__, told).splitlines()[-1])
    return found


def learn(name: str, seed: int, lesson: Lesson) -> dict[str, Any]:
    """Teach a model, and return its curve: steps, seconds and bits a byte of held-out text.

    Raises:
        CheckFailed: the loss is no longer finite.
    """
    model = make(name, lesson.shape, seed).train()
    optimizer = _optimizer(model, lesson)
    windows = torch.Generator().manual_seed(seed)
    steps, seconds, bits, spent = [0], [0.0], [_bits(model, lesson)], 0.0
    for step in range(1, lesson.steps + 1):
        batch = _windows("train", lesson, lesson.batch, windows)
        began = time.process_time()
        for group in optimizer.param_groups:
            group["lr"] = lesson.rate * min(1.0, step / lesson.warmup)
        loss = _nats(model, batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        spent += time.process_time() - began
        if not math.isfinite(loss.item()):
            raise CheckFailed(f"bench curves: {name}: at step {step} the loss is {loss.item()}")
        if step % lesson.every == 0 or step == lesson.steps:
            steps.append(step)
            seconds.append(spent)
            bits.append(_bits(model, lesson))
    return {"parameters": parameters(model), "steps": steps, "seconds": seconds, "bits": bits}


def _optimizer(model: nn.Module, lesson: Lesson) -> torch.optim.AdamW:
    """Make AdamW with weight decay on matrices alone."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lesson.rate, betas=(0.9, 0.95))


def _windows(split: Any, lesson: Lesson, count: int, random: torch.Generator) -> Tensor:
    """Draw windows of text at random places, each a byte longer than what a model reads."""
    from mnemic.search.tasks.bytes import corpus

    text = corpus(split)
    starts = torch.randint(len(text) - lesson.length, (count, 1), generator=random)
    return text[starts + torch.arange(lesson.length + 1)].long()


def _nats(model: nn.Module, batch: Tensor) -> Tensor:
    logits = model(input_ids=batch[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


@torch.no_grad()
def _bits(model: nn.Module, lesson: Lesson) -> float:
    """Return the mean bits a byte of the held-out windows."""
    model.eval()
    rows = _windows("test", lesson, lesson.held_out, torch.Generator().manual_seed(0))
    nats = [_nats(model, part).item() * len(part) for part in torch.split(rows, lesson.batch)]
    model.train()
    return math.fsum(nats) / len(rows) / math.log(2)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    print(json.dumps(learn(asked["name"], asked["seed"], Lesson(**asked["lesson"]))))
