"""What every task has, trained or not: a name, options with a ladder, a score's two ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import ClassVar, Generic, Literal, Self, TypeVar

import torch

from mnemic.errors import Issue, nearest
from mnemic.search.tasks.options import Options, refuse

Split = Literal["train", "test"]

Shown = tuple[str, str | None]
"""A position in words: what is read there, and what should be answered, if anything."""

O = TypeVar("O", bound=Options)  # noqa: E741


class Exercise(ABC, Generic[O]):
    """Options, a source of randomness, and what a score means.

    ``ladder`` names rungs from easy to the published setting and beyond; each rung is the
    options that differ from the defaults, and ``published`` is the defaults themselves where
    the source has one setting.

    ``digest`` is the SHA-256 of the file that a task of one's own comes from, None of a packaged
    one; `mnemic.search.tasks.register` sets it.

    Args:
        options: the task's options; their defaults where it is None.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    options_type: ClassVar[type[Options]]
    ladder: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True
    digest: ClassVar[str | None] = None

    def __init__(self, options: O | None = None) -> None:
        self.options: O = self.options_type() if options is None else options  # type: ignore[assignment]

    @classmethod
    def configure(cls, values: Mapping[str, object], rung: str | None = None) -> Self:
        """Make the task at a rung, with the named options set and the others at their defaults.

        Raises:
            UsageError: a rung or an option that the task does not have, or one out of its range.
        """
        known = tuple(f.name for f in fields(cls.options_type))
        unknown = [key for key in values if key not in known]
        issues = [
            Issue(f"no option of {cls.name}", "", key, known, nearest(key, known))
            for key in unknown
        ]
        if rung is not None and rung not in cls.ladder:
            rungs = tuple(cls.ladder)
            issues.append(Issue(f"no rung of {cls.name}", "", rung, rungs, nearest(rung, rungs)))
        refuse(issues)
        told = {**(cls.ladder[rung] if rung is not None else {}), **values}
        return cls(cls.options_type(**told))  # type: ignore[arg-type]

    @property
    @abstractmethod
    def chance(self) -> float:
        """The score of a guess without the skill that the task asks for."""

    @property
    def ceiling(self) -> float:
        """The best score that anything can have, or a bound on it."""
        return 1.0

    @abstractmethod
    def example(self, seed: int = 0) -> list[Shown]:
        """Return one held-out sequence in words."""

    @property
    def facts(self) -> dict[str, str | int]:
        """What else a result must tell to be reproduced (the data's digest, say)."""
        return {}

    def skill(self, score: float) -> float:
        """Place a score on the way from chance (0) to the ceiling (1); comparable between tasks."""
        return (score - self.chance) / (self.ceiling - self.chance)

    def generator(self, seed: int, split: Split) -> torch.Generator:
        """Return a stream's source of randomness: no train seed is ever a test seed.

        Args:
            seed: in [0, 2**62).
            split: which stream.
        """
        return torch.Generator().manual_seed(2 * seed + (split == "test"))
