"""A task of one's own: one small class, and the command knows it.

    mnemic tasks examples/own_task.py
    mnemic train gated-deltanet --task examples/own_task.py --rung tiny

Run it with ``.venv/bin/python examples/own_task.py`` to see a batch.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from mnemic.search.tasks import Batch, Options, Task, number, register


@dataclass(frozen=True)
class ParityOptions(Options):
    length: int = number(64, 1, 2**16, "bits in a sequence")


@register
class Parity(Task[ParityOptions]):
    """Say after every bit whether the number of ones so far is odd."""

    name = "parity"
    title = "parity of the bits so far"
    source = "folklore"
    options_type = ParityOptions
    ladder: ClassVar = {"tiny": {"length": 8}, "published": {}}
    vocabulary = 2
    chance = 0.5

    def batch(self, generator: torch.Generator, size: int, split: str) -> Batch:
        bits = torch.randint(2, (size, self.options.length), generator=generator)
        return Batch(bits, bits.cumsum(1) % 2)


if __name__ == "__main__":
    task = Parity()
    print(task.batch(task.generator(seed=0, split="train"), 2, "train"))
