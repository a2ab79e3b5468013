"""A needle in noise: one number, told once under a key somewhere in a long text, is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mnemic.errors import Issue
from mnemic.search.tasks.base import IGNORED, Batch, Split, Task
from mnemic.search.tasks.draws import integers
from mnemic.search.tasks.options import Options, choice, number, refuse

CYCLE = 24
"""Tokens of the text that a ``repeat`` haystack says over and over."""


@dataclass(frozen=True)
class NeedlesOptions(Options):
    """The options of `Needles`; the defaults are the passkey's at the shortest published length."""

    length: int = number(1024, 16, 2**17, "tokens in a sequence (T)")
    haystack: str = choice(
        "repeat", ("repeat", "random"), "one text over and over, or random words"
    )
    digits: int = number(7, 1, 64, "digits of the needle's number")
    base: int = number(10, 2, 256, "different digits")
    keys: int = number(64, 1, 4096, "different keys")
    words: int = number(256, CYCLE, 2**16, "different words of the haystack")
    scored: str = choice("digits", ("digits", "numbers"), "accuracy of each digit, or of the whole")

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 2 * self.digits + 4
        if self.length < least:
            text = f"a needle of {self.digits} digits and its question need at least {least} tokens"
            refuse([Issue(text, "length", str(self.length))])


class Needles(Task[NeedlesOptions]):
    """Find the one number that the text tells, and say it digit by digit.

    Words, somewhere among them (each place alike) the needle: a mark, a key, the number's
    digits. At the end the question: the mark and the key again, then the number, each digit
    predicted from what comes before it (as a model would that had said the ones before right).
    Scored are these digits, in training too.

    The synthetic version of the needle tests of RULER in the tables of Miras and Atlas (1K to
    8K): ``passkey`` hides a number of seven digits in one short text said over and over (here a
    cycle of 24 words), ``number`` in prose (here independent words, their frequencies falling
    as 1/rank), ``uuid`` 32 digits of base 16 in the same. RULER
    counts whole answers, as ``scored="numbers"`` does; the default, digit by digit, says more
    of those that find the needle in part. Keys, vocabulary and the needle's place are ours.
    """

    name = "needles"
    title = "a needle in noise"
    source = "Hsieh et al. 2024, RULER, arXiv:2404.06654; Miras table 3, Atlas table 3 (synthetic)"
    options_type = NeedlesOptions
    ladder: ClassVar = {
        "tiny": {"length": 64, "digits": 2, "keys": 4, "words": 32},
        "small": {"length": 256, "digits": 4},
        "published": {},
        **{f"passkey-{k}k": {"length": 1024 * k} for k in (2, 4, 8)},
        **{f"number-{k}k": {"length": 1024 * k, "haystack": "random"} for k in (1, 2, 4, 8)},
        **{
            f"uuid-{k}k": {"length": 1024 * k, "haystack": "random", "digits": 32, "base": 16}
            for k in (1, 2, 4)
        },
    }

    @property
    def vocabulary(self) -> int:
        """The number of tokens: digits, the mark, keys, words."""
        return self.options.base + 1 + self.options.keys + self.options.words

    @property
    def chance(self) -> float:
        """The score of guessing any digit, or any number where whole numbers are scored."""
        one = 1 / self.options.base
        return one if self.options.scored == "digits" else one**self.options.digits

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` sequences, [size, T]; the split matters through the generator alone."""
        o = self.options
        digits = integers(generator, o.base, size, o.digits)
        keys = o.base + 1 + integers(generator, o.keys, size, 1)
        needle = torch.cat([torch.full_like(keys, o.base), keys, digits], 1)
        hay = self._haystack(generator, size, o.length + 1 - 2 * needle.shape[1])
        start = integers(generator, hay.shape[1] + 1, size, 1)
        place = torch.arange(hay.shape[1] + needle.shape[1]).expand(size, -1)
        within = (place >= start) & (place < start + needle.shape[1])
        text = torch.empty(place.shape, dtype=torch.long)
        text[within], text[~within] = needle.flatten(), hay.flatten()
        tokens = torch.cat([text, needle], 1)
        targets = torch.full((size, o.length), IGNORED)
        targets[:, -o.digits :] = digits
        return Batch(tokens[:, :-1], targets)

    def _haystack(self, generator: torch.Generator, size: int, count: int) -> Tensor:
        """Draw the words around the needle, [size, count]."""
        o = self.options
        first = o.base + 1 + o.keys
        if o.haystack == "repeat":
            return first + (torch.arange(count) % CYCLE).repeat(size, 1)
        weights = 1 / torch.arange(1, o.words + 1, dtype=torch.double)
        drawn = torch.multinomial(weights, size * count, replacement=True, generator=generator)
        return first + drawn.reshape(size, count)

    def score(self, logits: Tensor, targets: Tensor) -> float:
        """Return the share of digits, or of whole numbers, that are right."""
        scored = targets != IGNORED
        right = (logits[scored].argmax(-1) == targets[scored]).reshape(-1, self.options.digits)
        whole = right if self.options.scored == "digits" else right.all(-1)
        return whole.double().mean().item()

    def word(self, token: int) -> str:
        """Return a token's word: a digit, ``key``, ``K3``, ``w3``."""
        o = self.options
        if token <= o.base:
            return "key" if token == o.base else str(token)
        return (
            f"K{token - o.base - 1}"
            if token <= o.base + o.keys
            else f"w{token - o.base - 1 - o.keys}"
        )
