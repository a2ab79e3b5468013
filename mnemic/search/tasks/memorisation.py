"""Memorisation: facts that are the same in every sequence, held by the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mnemic.errors import Issue
from mnemic.search.tasks.base import IGNORED, Batch, Split, Task
from mnemic.search.tasks.draws import integers
from mnemic.search.tasks.options import Options, number, refuse
from mnemic.search.tasks.recall import SOURCE


@dataclass(frozen=True)
class MemorisationOptions(Options):
    """The options of `Memorisation`: the published baseline setting."""

    vocabulary: int = number(256, 5, 2**20, "tokens: half keys, half values, and the question mark")
    length: int = number(32, 2, 2**14, "tokens in a sequence (T), even")
    map_seed: int = number(12345, 0, 2**31, "which map from keys to values is the true one")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length % 2:
            refuse([Issue("the length must be even", "length", str(self.length))])


class Memorisation(Task[MemorisationOptions]):
    """Say the value of each key, which no sequence ever shows.

    A key, uniform with repetition, then a question mark at which its value is due; the map from
    keys to values is one-to-one, and drawn once and for all. Held-out sequences ask for the same
    facts. Scored are the question marks, in training too. As published: vocabulary 256 (127 keys
    and 128 values), 16 questions; the sweep goes to vocabulary 8192. The published training set
    has 256 sequences; a stream has as many as are asked for.
    """

    name = "memorisation"
    title = "facts held by the parameters"
    source = SOURCE
    options_type = MemorisationOptions
    ladder: ClassVar = {
        "tiny": {"vocabulary": 32, "length": 16},
        "small": {"vocabulary": 128},
        "published": {},
        "wide": {"vocabulary": 1024},
        "widest": {"vocabulary": 8192},
    }

    @property
    def vocabulary(self) -> int:
        """The number of tokens: keys, values, the question mark."""
        return self.options.vocabulary

    @property
    def keys(self) -> int:
        """The number of tokens that are keys, [0, keys); values follow."""
        return (self.vocabulary - 1) // 2

    @property
    def chance(self) -> float:
        """The score of guessing any value."""
        return 1 / (self.vocabulary - 1 - self.keys)

    @property
    def truth(self) -> Tensor:
        """The value of each key, [keys]."""
        generator = torch.Generator().manual_seed(self.options.map_seed)
        values = self.vocabulary - 1 - self.keys
        return self.keys + torch.randperm(values, generator=generator)[: self.keys]

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` sequences, [size, T]; the split matters through the generator alone."""
        keys = integers(generator, self.keys, size, self.options.length // 2)
        inputs = torch.full((size, self.options.length), self.vocabulary - 1)
        inputs[:, ::2] = keys
        targets = torch.full_like(inputs, IGNORED)
        targets[:, 1::2] = self.truth[keys]
        return Batch(inputs, targets)

    def word(self, token: int) -> str:
        """Return a token's word: ``k3``, ``v3``, ``?``."""
        if token == self.vocabulary - 1:
            return "?"
        return f"k{token}" if token < self.keys else f"v{token - self.keys}"
