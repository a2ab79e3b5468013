"""Fuzzy recall: keys and values are runs of several tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mnemic.errors import Issue
from mnemic.search.tasks.base import Batch, Split, Task
from mnemic.search.tasks.draws import first_equal, integers, shifted
from mnemic.search.tasks.options import Options, choice, number, refuse
from mnemic.search.tasks.recall import SOURCE


@dataclass(frozen=True)
class FuzzyRecallOptions(Options):
    """The options of `FuzzyRecall`: the published baseline setting."""

    vocabulary: int = number(16, 4, 2**12, "tokens: keys, values and one of padding")
    length: int = number(128, 12, 2**14, "tokens in a sequence (T)")
    key_size: int = number(3, 1, 8, "most tokens of a key")
    value_size: int = number(3, 1, 8, "most tokens of a value")
    trained: str = choice(
        "next", ("next", "answers"), "trained on: every next token, or the answers"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        issues = []
        words = {"key": (self.vocabulary - 1) // 2, "value": self.vocabulary // 2}
        for what, count in words.items():
            size = self.key_size if what == "key" else self.value_size
            if size > count:
                text = f"{size} different tokens of a {what} need more than {self.vocabulary}"
                issues.append(Issue(text, "vocabulary", str(self.vocabulary)))
        longest = self.key_size + self.value_size
        if self.length <= 2 * longest:
            text = f"pairs of up to {longest} tokens need a length of at least {2 * longest + 1}"
            issues.append(Issue(text, "length", str(self.length)))
        refuse(issues)


@dataclass(frozen=True)
class _Pairs:
    """Candidates for the pairs of a sequence.

    Args:
        tokens: [B, P, key_size + value_size]: the key's, then the value's.
        used: the same shape, bool: which of them are there.
        first: [B, P]: the first pair with the same key.
        fits: [B, P], bool: which have room in the sequence; the first has, always.
    """

    tokens: Tensor
    used: Tensor
    first: Tensor
    fits: Tensor

    @property
    def sizes(self) -> Tensor:
        """Tokens of each pair, [B, P]."""
        return self.used.sum(-1)


class FuzzyRecall(Task[FuzzyRecallOptions]):
    """Recall a value of one to three tokens, after a key of as many.

    Keys and values have vocabularies of their own; the tokens of one key differ, and so do those
    of one value. In training, sizes are uniform from one to the most; a held-out sequence has
    keys of full size, so that the end of the key is known. A key that comes again has the same
    value. Pairs fill the sequence until two of the longest might no longer fit; then one of
    those shown comes again; what room is left is padding in front. Targets in training are all
    next tokens (padding included, as published); held out, the tokens of known keys' values.

    As published: vocabulary 16 (7 key tokens, 8 value tokens, padding), length 128, sizes up to
    3. Left open or changed here: which pair comes again (one of those shown, each alike; the
    published generator draws it first and then its place, and now and then has no room for it),
    and the room kept for it, here always that of the longest.
    """

    name = "fuzzy-recall"
    title = "in-context recall of runs of tokens"
    source = SOURCE
    options_type = FuzzyRecallOptions
    ladder: ClassVar = {
        "tiny": {"length": 32, "key_size": 2, "value_size": 1},
        "small": {"length": 64, "key_size": 2, "value_size": 2},
        "published": {},
        "wide": {"vocabulary": 128},
        "long": {"length": 1024},
    }

    @property
    def vocabulary(self) -> int:
        """The number of tokens: keys, values, padding."""
        return self.options.vocabulary

    @property
    def keys(self) -> int:
        """The number of tokens that keys are made of, [0, keys); those of values follow."""
        return (self.options.vocabulary - 1) // 2

    @property
    def chance(self) -> float:
        """The score of guessing one of the values' tokens."""
        return 1 / (self.vocabulary - 1 - self.keys)

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` fresh sequences, [size, T]."""
        pairs = self._pairs(generator, size, split)
        tokens, scored = self._laid_out(pairs, self._again(generator, pairs))
        if split == "train" and self.options.trained == "next":
            scored = torch.ones_like(scored)
        return shifted(tokens, scored)

    def _pairs(self, generator: torch.Generator, size: int, split: Split) -> _Pairs:
        o = self.options
        room = o.length - 2 * (o.key_size + o.value_size)
        count = 1 + room // 2
        key_sizes = 1 + integers(generator, o.key_size, size, count)
        if split == "test":
            key_sizes = torch.full_like(key_sizes, o.key_size)
        keys = self._runs(generator, size, count, self.keys, o.key_size)
        key_used = torch.arange(o.key_size) < key_sizes[..., None]
        digits = torch.where(key_used, keys + 1, 0)
        codes = (digits * (self.keys + 1) ** torch.arange(o.key_size)).sum(-1)
        first = first_equal(codes)
        values = self._runs(generator, size, count, self.vocabulary - 1 - self.keys, o.value_size)
        value_sizes = (1 + integers(generator, o.value_size, size, count)).gather(1, first)
        values = values.gather(1, first[..., None].expand_as(values)) + self.keys
        value_used = torch.arange(o.value_size) < value_sizes[..., None]
        used = torch.cat([key_used, value_used], -1)
        sizes = used.sum(-1)
        fits = sizes.cumsum(1) - sizes < room
        return _Pairs(torch.cat([keys, values], -1), used, first, fits)

    @staticmethod
    def _runs(
        generator: torch.Generator, size: int, count: int, choices: int, longest: int
    ) -> Tensor:
        """Draw [size, count, longest]: different tokens of [0, choices) in each run."""
        return torch.rand(size, count, choices, generator=generator).topk(longest).indices

    @staticmethod
    def _again(generator: torch.Generator, pairs: _Pairs) -> Tensor:
        """Draw which pair is asked for at the end, [B, 1]."""
        draw = torch.rand(pairs.fits.shape, generator=generator)
        return (draw + pairs.fits.float()).argmax(1, keepdim=True)

    def _laid_out(self, pairs: _Pairs, again: Tensor) -> tuple[Tensor, Tensor]:
        """Lay out the pairs that fit and the last, flush right: tokens and scored, [B, T + 1]."""
        batch, longest = len(again), pairs.tokens.shape[-1]
        there = torch.cat([pairs.fits, torch.ones(batch, 1, dtype=torch.bool)], 1)

        def with_last(x: Tensor) -> Tensor:
            index = again.reshape(batch, *[1] * (x.ndim - 1)).expand(batch, 1, *x.shape[2:])
            return torch.cat([x, x.gather(1, index)], 1)

        used = with_last(pairs.used) & there[..., None]
        flat = used.flatten(1)
        place = flat.cumsum(1) + self.options.length - flat.sum(1, keepdim=True)
        place = torch.where(flat, place, self.options.length + 1)  # what is not used goes aside
        known = pairs.first < torch.arange(pairs.first.shape[1])
        known = torch.cat([known, torch.ones(batch, 1, dtype=torch.bool)], 1)[..., None]
        answer = known & (torch.arange(longest) >= self.options.key_size)
        tokens = torch.full((batch, self.options.length + 2), self.vocabulary - 1)
        scored = torch.zeros(tokens.shape, dtype=torch.bool)
        tokens.scatter_(1, place, with_last(pairs.tokens).flatten(1))
        scored.scatter_(1, place, answer.expand_as(used).flatten(1))
        return tokens[:, :-1], scored[:, :-1]

    def word(self, token: int) -> str:
        """Return a token's word: ``k3``, ``v3``, ``·`` for padding."""
        if token == self.vocabulary - 1:
            return "·"
        return f"k{token}" if token < self.keys else f"v{token - self.keys}"
