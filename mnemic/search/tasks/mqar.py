"""Multi-query associative recall: key-value pairs first, then the keys again as queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mnemic.errors import Issue
from mnemic.search.tasks.base import IGNORED, Batch, Split, Task
from mnemic.search.tasks.draws import distinct
from mnemic.search.tasks.options import Options, choice, number, refuse

PUBLISHED_VOCABULARY = 8192


@dataclass(frozen=True)
class MqarOptions(Options):
    """The options of `Mqar`.

    Token 0 is the blank, [1, V/2) are keys, [V/2, V) are values. Vocabulary, power and blanks
    are those of the published experiments, whose figure 2 has 4 pairs in 64 tokens, 8 in 128, 16
    in 256 and 64 in 512 (rungs ``figure-…``); the defaults hold 8 pairs in 64 tokens, twice as
    dense. The published generator also offers, as ``fill="random"``, noise.
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

    Test-time regression (figure 3) trains on the same procedure, with 64 pairs (that is as many
    as the key's dimensions there) and with 128, at several lengths: rungs ``ttr-64`` and
    ``ttr-128``, here in 512 tokens. Its text describes pairs that may repeat before one query;
    its experiment follows the generator above, and so does this task.
    """

    name = "mqar"
    title = "multi-query associative recall"
    source = "Arora et al. 2023, Zoology, arXiv:2312.04927, section 3 and its published generator"
    options_type = MqarOptions
    ladder: ClassVar = {
        "tiny": {"vocabulary": 64, "pairs": 4, "length": 24},
        "small": {"vocabulary": 256, "pairs": 8, "length": 64},
        "published": {},
        "figure-64": {"pairs": 4, "length": 64},
        "figure-128": {"pairs": 8, "length": 128},
        "figure-256": {"pairs": 16, "length": 256},
        "figure-512": {"pairs": 64, "length": 512},
        "ttr-64": {"pairs": 64, "length": 512},
        "ttr-128": {"pairs": 128, "length": 512},
    }

    @property
    def vocabulary(self) -> int:
        """The number of tokens V: blank, keys, values."""
        return self.options.vocabulary

    @property
    def chance(self) -> float:
        """The score 1/pairs of guessing one of the values that were seen, without the key."""
        return 1 / self.options.pairs

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` sequences, [size, T]; the split matters through the generator alone."""
        o = self.options
        keys = 1 + distinct(generator, size, o.vocabulary // 2 - 1, o.pairs)
        values = o.vocabulary // 2 + distinct(generator, size, -(-o.vocabulary // 2), o.pairs)
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

    def word(self, token: int) -> str:
        """Return a token's word: ``·``, ``k3``, ``v3``."""
        half = self.options.vocabulary // 2
        return "·" if token == 0 else f"k{token}" if token < half else f"v{token - half}"

    def _query_positions(self, generator: torch.Generator, size: int) -> Tensor:
        """Draw where each key is asked for, [size, pairs], by the power law of the distance."""
        o = self.options
        slots = torch.arange(1, o.length // 2 - o.pairs + 1, dtype=torch.double)
        weights = (slots ** (o.power - 1)).expand(size, -1)
        return 2 * o.pairs + 2 * torch.multinomial(weights, o.pairs, generator=generator)


def _contradictions(o: MqarOptions) -> list[Issue]:
    """List what is wrong between options that are each in range."""
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
