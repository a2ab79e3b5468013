"""Multi-query associative recall: key-value pairs first, then the keys again as queries."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemic.errors import Issue
from mnemic.search.tasks.base import IGNORED, Batch, Split, Task
from mnemic.search.tasks.options import Options, choice, number, refuse

PUBLISHED_VOCABULARY = 8192


@dataclass(frozen=True)
class MqarOptions(Options):
    """The options of `Mqar`.

    Token 0 is the blank, [1, V/2) are keys, [V/2, V) are values. The defaults are those of the
    published experiments (figure 2, the row of 64 tokens and 8 pairs): vocabulary 8192, power
    0.01, and blanks; the published generator also offers, as ``fill="random"``, noise.
    """

    vocabulary: int = number(PUBLISHED_VOCABULARY, 8, 2**20, "tokens: blank, keys and values")
    pairs: int = number(8, 1, 4096, "key-value pairs in a sequence")
    length: int = number(64, 4, 2**17, "tokens in a sequence (T), even")
    power: float = number(0.01, 0.001, 100.0, "of the power law of distances; 1 is uniform")
    fill: str = choice("zeros", ("zeros", "random"), "other positions: the blank, or any token")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(_contradictions(self))


class Mqar(Task[MqarOptions]):
    """Recall the value that followed each key; the answer is due at the queried key.

    The sequence is k_1 v_1 ... k_n v_n, then (T - 2n)/2 slots of two tokens. Each key returns
    once, as the first token of a slot of its own, slot i (from 1) drawn without replacement
    with probability in proportion to i^(a-1). Scored are the queries alone. With
    ``fill="random"`` every other position holds a random token of the whole vocabulary, now
    and then one of the sequence's own keys: noise to be ignored.
    """

    name = "mqar"
    title = "multi-query associative recall"
    source = "Arora et al. 2023, Zoology, arXiv:2312.04927, section 3 and its published generator"
    options_type = MqarOptions

    @property
    def vocabulary(self) -> int:
        """V: blank, keys, values."""
        return self.options.vocabulary

    @property
    def chance(self) -> float:
        """1/pairs: one of the values that were seen, without the key."""
        return 1 / self.options.pairs

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """``size`` fresh sequences, [size, T]; the split matters through the generator alone."""
        o = self.options
        keys = 1 + _distinct(generator, size, o.vocabulary // 2 - 1, o.pairs)
        values = o.vocabulary // 2 + _distinct(generator, size, -(-o.vocabulary // 2), o.pairs)
        queries = self._query_positions(generator, size)
        inputs = torch.zeros(size, o.length, dtype=torch.long)
        inputs[:, 0 : 2 * o.pairs : 2] = keys
        inputs[:, 1 : 2 * o.pairs : 2] = values
        inputs.scatter_(1, queries, keys)
        if o.fill == "random":
            noise = torch.randint(o.vocabulary, inputs.shape, generator=generator)
            inputs = torch.where(inputs == 0, noise, inputs)
        targets = torch.full_like(inputs, IGNORED).scatter_(1, queries, values)
        return Batch(inputs, targets)

    def _query_positions(self, generator: torch.Generator, size: int) -> Tensor:
        """[size, pairs]: where each key is asked for, by the power law of the distance."""
        o = self.options
        slots = torch.arange(1, o.length // 2 - o.pairs + 1, dtype=torch.double)
        weights = (slots ** (o.power - 1)).expand(size, -1)
        return 2 * o.pairs + 2 * torch.multinomial(weights, o.pairs, generator=generator)


def _distinct(generator: torch.Generator, size: int, choices: int, count: int) -> Tensor:
    """[size, count]: in each row, ``count`` different integers of [0, choices)."""
    return torch.rand(size, choices, generator=generator).topk(count).indices


def _contradictions(o: MqarOptions) -> list[Issue]:
    """What is wrong between options that are each in range."""
    issues = []
    if o.length % 2:
        issues.append(Issue("the length must be even", "length", str(o.length)))
    if o.length < 4 * o.pairs:
        text = f"{o.pairs} pairs and their queries need a length of at least {4 * o.pairs}"
        issues.append(Issue(text, "length", str(o.length)))
    if o.vocabulary // 2 - 1 < o.pairs:
        text = f"{o.pairs} different keys need a vocabulary of at least {2 * o.pairs + 2}"
        issues.append(Issue(text, "vocabulary", str(o.vocabulary)))
    return issues
