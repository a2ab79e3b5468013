"""Repeat previous: say at every token the symbol that was shown some tokens ago."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from mnemic.errors import Issue
from mnemic.search.tasks.base import IGNORED, Batch, Split, Task
from mnemic.search.tasks.options import Options, number, refuse


@dataclass(frozen=True)
class RepeatPreviousOptions(Options):
    """The options of `RepeatPrevious`: the published hard setting."""

    vocabulary: int = number(4, 2, 2**16, "symbols; suits of the cards, as published")
    copies: int = number(39, 1, 2**16, "times that each symbol is shown")
    back: int = number(64, 1, 2**17, "the symbol to say, counted from 1, the present one")

    @property
    def length(self) -> int:
        """The number of tokens in a sequence, T."""
        return self.vocabulary * self.copies

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.back > self.length:
            text = f"{self.length} tokens, {self.copies} of each symbol, do not go back so far"
            refuse([Issue(text, "back", str(self.back))])


class RepeatPrevious(Task[RepeatPreviousOptions]):
    """Say at every token the symbol that stood ``back`` - 1 tokens before it.

    A shuffled deck, each symbol equally often; ``back: 1`` asks for the symbol that is shown. The
    memory has to keep the last ``back`` symbols in their order, and to let go of older ones. As
    published: the suits of one, two or three decks of 52 cards and ``back`` of 4, 32 and 64 (rungs
    ``easy``, ``medium`` and ``published``), there played as a game for a reward.
    """

    name = "repeat-previous"
    title = "the symbol of some tokens ago"
    source = "Morad et al. 2023, POPGym, arXiv:2303.01859, RepeatPrevious, and its published code"
    options_type = RepeatPreviousOptions
    ladder: ClassVar = {
        "tiny": {"copies": 6, "back": 3},
        "easy": {"copies": 13, "back": 4},
        "medium": {"copies": 26, "back": 32},
        "published": {},
    }

    @property
    def vocabulary(self) -> int:
        """The number of tokens: the symbols."""
        return self.options.vocabulary

    @property
    def chance(self) -> float:
        """The score of guessing any symbol."""
        return 1 / self.vocabulary

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` sequences, [size, T]; the split matters through the generator alone."""
        o = self.options
        order = torch.rand(size, o.length, generator=generator).argsort(1)
        inputs = order % o.vocabulary
        targets = torch.full_like(inputs, IGNORED)
        targets[:, o.back - 1 :] = inputs[:, : o.length - o.back + 1]
        return Batch(inputs, targets)

    def word(self, token: int) -> str:
        """Return a token's word: ``s3``."""
        return f"s{token}"
