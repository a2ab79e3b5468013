"""The shape of a model: the papers' sizes by name, or any other."""

from dataclasses import dataclass

from mnemic.errors import Issue, UsageError, format_issue, nearest


@dataclass(frozen=True)
class Size:
    """A size that the papers train, and how they train it.

    Args:
        blocks: of memory and feed-forward.
        dim: channels of the stream.
        heads: of each memory.
        rate: the largest learning rate.
        tokens: of training.
    """

    blocks: int
    dim: int
    heads: int
    rate: float
    tokens: float


SIZES = {
    "170M": Size(12, 768, 16, 3e-3, 15e9),
    "340M": Size(24, 1024, 16, 1.5e-3, 15e9),
    "760M": Size(24, 1536, 16, 1.25e-3, 30e9),
    "1.3B": Size(18, 2048, 8, 7e-4, 100e9),
}
"""By name. Source: Atlas, Table 7; Miras, Table 6, which has 350M and 780M for the same shapes."""

VOCABULARY = 32_000
"""Tokens where none are told. Atlas, appendix E: the T5 tokenizer with a vocabulary of 32K."""


@dataclass(frozen=True)
class Shape:
    """What a model is, beside its memories.

    Args:
        blocks, dim: at least 1.
        heads: of each memory whose spec does not say; None for a head each 64 channels.
        hidden: units of a feed-forward; None for 8/3 dim under ``swiglu``, else 4 dim.
        vocabulary: tokens, at least 2.
        tied: whether the head is the embedding's transpose.
        length: tokens that the model is meant for.
        init: the standard deviation of initial maps; None for 1/sqrt(inputs).

    Raises:
        UsageError: a number below its range.
    """

    blocks: int
    dim: int
    heads: int | None = None
    hidden: int | None = None
    vocabulary: int = VOCABULARY
    tied: bool = True
    length: int = 4096
    init: float | None = None

    def __post_init__(self) -> None:
        least = {"blocks": 1, "dim": 1, "heads": 1, "hidden": 1, "vocabulary": 2, "length": 1}
        for name, low in least.items():
            found = getattr(self, name)
            if found is not None and found < low:
                raise UsageError(f"{name}: read {found}, must be at least {low}")
        if self.init is not None and not 0 < self.init < 1:
            raise UsageError(f"init: read {self.init}, must lie between 0 and 1")


def named_size(name: str) -> Size:
    """Return the papers' size of a name, whatever its letters' case.

    Raises:
        UsageError: there is none of that name.
    """
    found = SIZES.get(name.upper())
    if found is None:
        issue = Issue("", "--size", name, tuple(SIZES), nearest(name, SIZES))
        raise UsageError(format_issue(issue))
    return found
