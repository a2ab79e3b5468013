"""Swaps: which of n elements is in the first place after each exchange of two places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from mnemic.errors import Issue
from mnemic.search.tasks.base import Batch, Split, Task
from mnemic.search.tasks.draws import integers
from mnemic.search.tasks.options import Options, number, refuse


@dataclass(frozen=True)
class SwapsOptions(Options):
    """The options of `Swaps`; the defaults are the published ones for five elements."""

    elements: int = number(5, 2, 512, "elements, and places (n)")
    length: int = number(16, 1, 2**16, "swaps in a sequence (T)")
    start: int = number(0, 0, 2**16, "swaps of the curriculum's first level; 0 for none")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start > self.length:
            text = f"the curriculum must start at no more than {self.length} swaps, the length"
            refuse([Issue(text, "start", str(self.start))])


class Swaps(Task[SwapsOptions]):
    """Name the element in the first place after every swap: the state is a permutation.

    At the beginning element i is in place i. Each token swaps two places, each of the n (n-1)/2
    pairs of places alike; at each token the element in the first place is due. S5 is the
    smallest such group that is not solvable: to follow it is complete for NC¹.

    As published: a token for each pair of places, n = 5 and 16 swaps (figures 4 and 8), 256 with
    the length doubled from 32 whenever the accuracy reaches 0.99 (figure 6: ``start``), n = 128,
    256 and 512 with 256, 512 and 1024 swaps (figure 5). Here elements have tokens of their own,
    where the printed code gives the first n swaps' numbers to them, and the curriculum goes on
    when held-out sequences of the level, not a training batch, are mastered.
    """

    name = "swaps"
    title = "swaps of n elements"
    source = "Zhong et al. 2025, Transformer as associative memory, section 3.2, figures 3-6 and 8"
    options_type = SwapsOptions
    ladder: ClassVar = {
        "tiny": {"elements": 3, "length": 8},
        "small": {"elements": 4, "length": 16},
        "published": {},
        "curriculum": {"length": 256, "start": 32},
        "256": {"length": 256},
        "n-128": {"elements": 128, "length": 256},
        "n-256": {"elements": 256, "length": 512},
        "n-512": {"elements": 512, "length": 1024},
    }

    @property
    def places(self) -> Tensor:
        """The two places of each swap, the smaller first, [n (n-1)/2, 2]."""
        return _places(self.options.elements)

    @property
    def vocabulary(self) -> int:
        """The number of tokens: elements, then swaps."""
        n = self.options.elements
        return n + n * (n - 1) // 2

    @property
    def chance(self) -> float:
        """The score of always naming the element that began in the first place.

        The first place's element walks with the eigenvalue λ = 1 - 2/(n-1), hence
        mean_t (1/n + (1 - 1/n) λ^t).
        """
        n, length = self.options.elements, self.options.length
        walk = 1 - 2 / (n - 1)
        still = sum(walk**t for t in range(1, length + 1)) / length
        return 1 / n + (1 - 1 / n) * still

    @property
    def levels(self) -> Sequence[Swaps]:
        """The curriculum: lengths doubled from ``start`` to the length."""
        lengths, at = [], self.options.start
        while 0 < at < self.options.length:
            lengths.append(at)
            at *= 2
        plain = replace(self.options, start=0)
        return (*(Swaps(replace(plain, length=length)) for length in lengths), self)

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` sequences, [size, T]; the split matters through the generator alone."""
        n, places = self.options.elements, self.places
        swaps = integers(generator, len(places), size, self.options.length)
        held = torch.arange(n).repeat(size, 1)
        targets = torch.empty_like(swaps)
        for t in range(self.options.length):
            pair = places[swaps[:, t]]
            held.scatter_(1, pair, held.gather(1, pair.flip(1)))
            targets[:, t] = held[:, 0]
        return Batch(swaps + n, targets)

    def word(self, token: int) -> str:
        """Return a token's word: ``(1 4)`` for a swap of places, ``c`` for the third element."""
        n = self.options.elements
        if token >= n:
            one, other = (self.places[token - n] + 1).tolist()
            return f"({one} {other})"
        return chr(ord("a") + token) if n <= 26 else f"e{token + 1}"


@lru_cache(maxsize=16)
def _places(n: int) -> Tensor:
    return torch.combinations(torch.arange(n))
