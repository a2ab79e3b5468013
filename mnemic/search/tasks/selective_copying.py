"""Selective copying: repeat some tokens in order, whatever blanks lay between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from mnemic.errors import Issue
from mnemic.search.tasks.base import IGNORED, Batch, Split, Task
from mnemic.search.tasks.draws import integers
from mnemic.search.tasks.options import Options, number, refuse
from mnemic.search.tasks.recall import SOURCE


@dataclass(frozen=True)
class SelectiveCopyingOptions(Options):
    """The options of `SelectiveCopying`: the published baseline setting."""

    vocabulary: int = number(16, 4, 2**16, "tokens: symbols, the blank, the mark to begin")
    length: int = number(256, 4, 2**17, "tokens in a sequence (T)")
    copies: int = number(16, 1, 4096, "symbols to copy")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length <= 2 * self.copies + 1:
            least = 2 * self.copies + 2
            text = f"{self.copies} symbols and their copies need a length of at least {least}"
            refuse([Issue(text, "length", str(self.length))])


class SelectiveCopying(Task[SelectiveCopyingOptions]):
    """Copy the symbols, in their order, after the mark.

    Symbols, uniform with repetition, with blanks before any of them: each blank chooses its
    symbol uniformly, so that the last symbol is the last thing before the mark. After the mark,
    as many blanks as symbols; scored are these alone, in training too. As published: vocabulary
    16 (14 symbols), length 256, 16 symbols; the sweep goes to 96 symbols, vocabulary 128 and
    length 1024 (rungs ``many``, ``wide``, ``long``).
    """

    name = "selective-copying"
    title = "copying past blanks"
    source = SOURCE
    options_type = SelectiveCopyingOptions
    ladder: ClassVar = {
        "tiny": {"vocabulary": 8, "length": 24, "copies": 4},
        "small": {"length": 64, "copies": 8},
        "published": {},
        "many": {"copies": 96},
        "wide": {"vocabulary": 128},
        "long": {"length": 1024},
    }

    @property
    def vocabulary(self) -> int:
        """The number of tokens: symbols, then the blank, then the mark."""
        return self.options.vocabulary

    @property
    def chance(self) -> float:
        """The score of guessing any symbol."""
        return 1 / (self.vocabulary - 2)

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` sequences, [size, T]; the split matters through the generator alone."""
        o = self.options
        blank, mark = o.vocabulary - 2, o.vocabulary - 1
        blanks = o.length - 2 * o.copies - 1
        symbols = integers(generator, blank, size, o.copies)
        chosen = integers(generator, o.copies, size, blanks)
        before = torch.zeros(size, o.copies, dtype=torch.long)
        before = before.scatter_add_(1, chosen, torch.ones_like(chosen)).cumsum(1)
        inputs = torch.full((size, o.length), blank)
        inputs.scatter_(1, before + torch.arange(o.copies), symbols)
        inputs[:, -o.copies - 1] = mark
        targets = torch.full_like(inputs, IGNORED)
        targets[:, -o.copies :] = symbols
        return Batch(inputs, targets)

    def word(self, token: int) -> str:
        """Return a token's word: ``s3``, ``·``, ``copy``."""
        return {self.vocabulary - 2: "·", self.vocabulary - 1: "copy"}.get(token, f"s{token}")
