"""In-context recall: pairs that come again, each time with the value they had the first time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mnemic.errors import Issue
from mnemic.search.tasks.base import Batch, Split, Task
from mnemic.search.tasks.draws import first_equal, integers, shifted
from mnemic.search.tasks.exercise import O
from mnemic.search.tasks.options import Options, choice, number, refuse

SOURCE = "Poli et al. 2024, Mechanistic design, arXiv:2403.17844, section 3, and its MAD-Lab"


@dataclass(frozen=True)
class RecallOptions(Options):
    """The options of `Recall`: the published baseline setting."""

    vocabulary: int = number(16, 4, 2**16, "tokens: half are keys, half values")
    length: int = number(128, 6, 2**14, "tokens of the pairs, even; the last one is only asked for")
    trained: str = choice(
        "next", ("next", "answers"), "trained on: every next token, or the answers"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(odd(self.length))


class RecallOfPairs(Task[O]):
    """The generator of `Recall`, with noise between the pairs for those who add some.

    Pairs k v, one after the other; keys are uniform, values uniform the first time and the same
    ever after. The last pair's key is one of those before it, each different one alike. Scored
    are the values of keys that were shown before.
    """

    pairs: int
    keys: int
    values: int
    noises: int = 0
    noise: float = 0.0
    trained: str = "next"

    @property
    def vocabulary(self) -> int:
        """The number of tokens: keys, then values, then noise."""
        return self.keys + self.values + self.noises

    @property
    def chance(self) -> float:
        """The score of guessing one of the values, whatever the key."""
        return 1 / self.values

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` fresh sequences, [size, 2 pairs - 1]."""
        silent = self._silent(generator, size)
        keys = integers(generator, self.keys, size, self.pairs)
        keys[:, -1] = self._probe(generator, keys, silent)
        values = integers(generator, self.values, size, self.keys).gather(1, keys) + self.keys
        noise = integers(generator, max(1, self.noises), size, self.pairs, 2)
        pairs = torch.stack([keys, values], -1)
        tokens = torch.where(silent[..., None], noise + self.keys + self.values, pairs)
        own = -1 - torch.arange(self.pairs)  # a slot of noise equals none but itself
        first = first_equal(torch.where(silent, own, keys))
        known = ~silent & (first < torch.arange(self.pairs))
        scored = torch.stack([torch.zeros_like(known), known], -1).flatten(1)
        if split == "train" and self.trained == "next":
            scored = torch.ones_like(scored)
        return shifted(tokens.flatten(1), scored)

    def _silent(self, generator: torch.Generator, size: int) -> Tensor:
        """Draw which pairs give way to noise, [size, pairs]; never the last, never all others."""
        silent = torch.rand(size, self.pairs, generator=generator) < self.noise
        silent.scatter_(1, integers(generator, self.pairs - 1, size, 1), False)
        silent[:, -1] = False
        return silent

    def _probe(self, generator: torch.Generator, keys: Tensor, silent: Tensor) -> Tensor:
        """Draw one of the different keys that were shown before the last pair, [size]."""
        shown = torch.where(silent, self.keys, keys)[:, :-1]
        present = torch.zeros(len(keys), self.keys + 1).scatter_(1, shown, 1.0)[:, :-1]
        return (present * (1 + torch.rand(present.shape, generator=generator))).argmax(1)

    def word(self, token: int) -> str:
        """Return a token's word: ``k3``, ``v3``, ``·3`` for noise."""
        if token < self.keys:
            return f"k{token}"
        value = token - self.keys
        return f"v{value}" if value < self.values else f"·{value - self.values}"


class Recall(RecallOfPairs[RecallOptions]):
    """Recall, again and again, the value of a key that was shown before.

    See `RecallOfPairs` for the sequence. As published: vocabulary 16, that is 8 keys and 8
    values; 64 pairs, of which the last value is only a target; in training every next token is a
    target, held-out sequences score the values of known keys alone. The published sweeps go to
    128 tokens and to length 1024 (rungs ``wide`` and ``long``) and also cut the training set,
    from 12800 sequences, which a stream has no use for.
    """

    name = "recall"
    title = "in-context recall"
    source = SOURCE
    options_type = RecallOptions
    ladder: ClassVar = {
        "tiny": {"length": 32},
        "small": {"length": 64},
        "published": {},
        "wide": {"vocabulary": 128},
        "long": {"length": 1024},
    }

    def __init__(self, options: RecallOptions | None = None) -> None:
        super().__init__(options)
        o = self.options
        self.pairs, self.trained = o.length // 2, o.trained
        self.keys, self.values = o.vocabulary // 2, o.vocabulary - o.vocabulary // 2


def odd(length: int) -> list[Issue]:
    """Return the issue of a length that is odd, so that pairs do not fill it; none where even."""
    return [Issue("the length must be even", "length", str(length))] if length % 2 else []
