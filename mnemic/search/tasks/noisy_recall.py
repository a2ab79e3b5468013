"""Noisy recall: in-context recall with noise in the place of some pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mnemic.errors import Issue
from mnemic.search.tasks.options import Options, choice, number, refuse
from mnemic.search.tasks.recall import SOURCE, RecallOfPairs, odd


@dataclass(frozen=True)
class NoisyRecallOptions(Options):
    """The options of `NoisyRecall`: the published baseline setting."""

    vocabulary: int = number(32, 5, 2**16, "tokens: keys, values, noise")
    noise_vocabulary: int = number(16, 1, 2**16, "of these, tokens of noise")
    noise: float = number(0.2, 0.0, 0.95, "share of the pairs that are noise instead")
    length: int = number(128, 6, 2**14, "tokens of the pairs, even; the last one is only asked for")
    trained: str = choice(
        "next", ("next", "answers"), "trained on: every next token, or the answers"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        issues = odd(self.length)
        if self.vocabulary - self.noise_vocabulary < 4:
            text = f"{self.noise_vocabulary} tokens of noise leave fewer than 4 for keys and values"
            issues.append(Issue(text, "vocabulary", str(self.vocabulary)))
        refuse(issues)


class NoisyRecall(RecallOfPairs[NoisyRecallOptions]):
    """Recall the value of a known key, where two tokens of noise replace some of the pairs.

    The sequence is that of `Recall`. Each pair but the last is noise with the given probability,
    one of them, drawn at random, excepted; both tokens of a noisy pair are uniform over a
    vocabulary of their own. As published: 16 tokens of noise beside 8 keys and 8 values, a fifth
    of the pairs noise; the sweep goes to 0.8 (rung ``noisy``). The published generator may draw
    the exception past the last pair, and then, once in a blue moon, has nothing to ask for.
    """

    name = "noisy-recall"
    title = "in-context recall among noise"
    source = SOURCE
    options_type = NoisyRecallOptions
    ladder: ClassVar = {
        "tiny": {"length": 32},
        "small": {"length": 64},
        "published": {},
        "noisy": {"noise": 0.8},
        "wide": {"vocabulary": 144},
        "long": {"length": 1024},
    }

    def __init__(self, options: NoisyRecallOptions | None = None) -> None:
        super().__init__(options)
        o = self.options
        told = o.vocabulary - o.noise_vocabulary
        self.keys, self.values, self.noises = told // 2, told - told // 2, o.noise_vocabulary
        self.noise, self.pairs, self.trained = o.noise, o.length // 2, o.trained
