"""What a task is: a seeded stream of token batches and a score for a model's answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from mnemic.errors import Issue, nearest
from mnemic.search.tasks.options import Options, refuse

Split = Literal["train", "test"]
IGNORED = -100
"""The target of a position that is not scored."""

O = TypeVar("O", bound=Options)  # noqa: E741


@dataclass(frozen=True)
class Batch:
    """Sequences and what should be predicted at each position.

    Args:
        inputs: [B, T], long, tokens in [0, vocabulary).
        targets: [B, T], long, the token to predict at each position, or -100: not scored.
    """

    inputs: Tensor
    targets: Tensor


class Task(ABC, Generic[O]):
    """A stream of batches and a score; a new task is one subclass with one `Options`.

    A subclass sets the class attributes, gives ``vocabulary``, ``chance`` and ``batch``, and
    is added by `mnemic.search.tasks.register`. `score` is the accuracy unless overridden; it
    must be a mean over the scored positions, so that it can be averaged over batches.

    Args:
        options: the task's options; their defaults where it is None.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    options_type: ClassVar[type[Options]]
    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True

    def __init__(self, options: O | None = None) -> None:
        self.options: O = self.options_type() if options is None else options  # type: ignore[assignment]

    @classmethod
    def configure(cls, values: Mapping[str, object]) -> Task[O]:
        """The task with the named options set and the others at their defaults.

        Raises:
            UsageError: an option that the task does not have, or one out of its range.
        """
        known = tuple(f.name for f in fields(cls.options_type))
        unknown = [key for key in values if key not in known]
        refuse(
            [
                Issue(f"no option of {cls.name}", "", key, known, nearest(key, known))
                for key in unknown
            ]
        )
        return cls(cls.options_type(**values))  # type: ignore[arg-type]

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """The number of tokens."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """The score of a guess without the skill that the task asks for."""

    @property
    def ceiling(self) -> float:
        """The best score that any model can have, or a bound on it."""
        return 1.0

    @property
    def facts(self) -> dict[str, str | int]:
        """What else a result must tell to be reproduced (the data's digest, say)."""
        return {}

    def generator(self, seed: int, split: Split) -> torch.Generator:
        """A stream's source of randomness: no train seed is ever a test seed.

        Args:
            seed: in [0, 2**62).
            split: which stream.
        """
        return torch.Generator().manual_seed(2 * seed + (split == "test"))

    @abstractmethod
    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """The next ``size`` sequences of a stream; the generator's state says where it is."""

    def score(self, logits: Tensor, targets: Tensor) -> float:
        """The mean over the scored positions; here the share whose largest logit is right.

        Args:
            logits: [..., vocabulary].
            targets: [...], long; -100 is not scored.
        """
        scored = targets != IGNORED
        return (logits[scored].argmax(-1) == targets[scored]).double().mean().item()
