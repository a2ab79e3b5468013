"""What a trained task is: a seeded stream of token batches and a score for a model's answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mnemic.search.tasks.exercise import Exercise, O, Shown, Split

IGNORED = -100
"""The target of a position that is not scored."""

MASTERED = 0.99
"""The skill at which a curriculum goes on to its next level."""

__all__ = ["IGNORED", "MASTERED", "Batch", "Split", "Task"]


@dataclass(frozen=True)
class Batch:
    """Sequences and what should be predicted at each position.

    Args:
        inputs: [B, T], long, tokens in [0, vocabulary).
        targets: [B, T], long, the token to predict at each position, or -100: not scored.
    """

    inputs: Tensor
    targets: Tensor


class Task(Exercise[O]):
    """A stream of batches and a score; a new task is one subclass with one `Options`.

    A subclass sets the class attributes, gives ``vocabulary``, ``chance`` and ``batch``, and
    is added by `mnemic.search.tasks.register`. `score` is the accuracy unless overridden; it
    must be a mean over the scored positions, so that it can be averaged over batches.
    """

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """The number of tokens."""

    @abstractmethod
    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw the next ``size`` sequences of a stream; the generator's state says where it is."""

    def score(self, logits: Tensor, targets: Tensor) -> float:
        """Return the mean over the scored positions; here the share whose largest logit is right.

        Args:
            logits: [..., vocabulary].
            targets: [...], long; -100 is not scored.
        """
        scored = targets != IGNORED
        return (logits[scored].argmax(-1) == targets[scored]).double().mean().item()

    @property
    def levels(self) -> Sequence[Task[Any]]:
        """The curriculum: tasks of the same vocabulary to be trained in turn, the last this one.

        Training goes on to the next level when held-out sequences of the present one are
        `mastered`; scores are those of the last one at all times.
        """
        return (self,)

    def mastered(self, score: float) -> bool:
        """Return whether a level with this score is learned well enough to go on to the next."""
        return self.skill(score) >= MASTERED

    def decoder(self, dim: int) -> nn.Module | None:
        """Return a module between the model's stream and its head, [B, T, dim] to [B, T, dim].

        None where each position answers for itself, as in a language model. A module is trained
        with the model, and must be drawn from torch's own stream of random numbers.
        """
        return None

    def word(self, token: int) -> str:
        """Return a token for people to read."""
        return str(token)

    def example(self, seed: int = 0) -> list[Shown]:
        """Return one held-out sequence in words: each token, and the answer due at it or None."""
        drawn = self.batch(self.generator(seed, "test"), 1, "test")
        return [
            (self.word(read), None if answer == IGNORED else self.word(answer))
            for read, answer in zip(
                drawn.inputs[0].tolist(), drawn.targets[0].tolist(), strict=True
            )
        ]
