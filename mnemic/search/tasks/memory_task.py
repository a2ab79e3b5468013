"""What a task of the memory alone is: streams of keys and values that no model is trained on."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mnemic.search.tasks.exercise import Exercise, O, Shown, Split


@dataclass(frozen=True)
class Pairs:
    """What a memory is shown, in float64.

    Args:
        keys: [B, T + 1, d].
        values: [B, T + 1, d], none of them zero.
    """

    keys: Tensor
    values: Tensor


class MemoryTask(Exercise[O]):
    """A stream of key-value pairs to be predicted one step ahead, without any training.

    After pair t the memory is asked for the value of key t + 1, before it sees that value:
    error_t = |M_t(k_{t+1}) - v_{t+1}|² / |v_{t+1}|², which is 1 for the answer zero. The score is
    its mean over positions; `mnemic.search.tasks.evaluate` computes it for an operator. A
    subclass sets the class attributes and gives ``dim``, ``length`` and ``pairs``.
    """

    metric: ClassVar[str] = "relative error"
    higher_is_better: ClassVar[bool] = False

    @property
    @abstractmethod
    def dim(self) -> int:
        """The size d of keys and of values."""

    @property
    @abstractmethod
    def length(self) -> int:
        """The length T: the predictions of a sequence."""

    @abstractmethod
    def pairs(self, generator: torch.Generator, size: int, split: Split) -> Pairs:
        """Draw the next ``size`` sequences of a stream, [size, T + 1, d]."""

    @property
    def chance(self) -> float:
        """The error of the answer zero."""
        return 1.0

    @property
    def ceiling(self) -> float:
        """A bound on the error: none at all."""
        return 0.0

    def example(self, seed: int = 0) -> list[Shown]:
        """Return one held-out sequence in words: each key, and the value that is due."""
        drawn = self.pairs(self.generator(seed, "test"), 1, "test")
        return [
            (_numbers(key), _numbers(value))
            for key, value in zip(drawn.keys[0], drawn.values[0], strict=True)
        ]


def errors(answers: Tensor, values: Tensor) -> Tensor:
    """Return squared errors relative to the values, [..., T], from two [..., T, d]."""
    return (answers - values).square().sum(-1) / values.square().sum(-1)


def _numbers(x: Tensor) -> str:
    """Write the first numbers of a vector as text."""
    shown = " ".join(f"{number:+.2f}" for number in x[:3].tolist())
    return f"({shown}{' …' if len(x) > 3 else ''})"
