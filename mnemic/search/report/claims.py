"""What the papers claim about systems on these tasks, shown beside what is measured here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MAD: Final = ("compression", "recall", "noisy-recall", "fuzzy-recall", "selective-copying",
               "memorisation")  # fmt: skip


def _mad(*scores: float) -> dict[str, float]:
    """Name five accuracies in percent by task; one stands for recall with and without noise."""
    compression, recall, fuzzy, copying, facts = scores
    return dict(zip(_MAD, (compression, recall, recall, fuzzy, copying, facts), strict=True))


MAD: Final[dict[str, dict[str, float]]] = {
    "softmax-attention": _mad(49.4, 100, 48.2, 95.9, 83.8),
    "gated-deltanet": _mad(44.8, 100, 32.5, 96.2, 81.7),
    "titans": _mad(49.6, 100, 49.7, 99.4, 83.5),
    "yaad": _mad(51.9, 100, 50.2, 99.6, 85.7),
    "moneta": _mad(51.1, 100, 48.9, 99.6, 85.4),
    "memora": _mad(50.5, 100, 48.7, 99.6, 85.1),
    "omeganet": _mad(50.9, 100, 54.2, 99.6, 90.2),
    "atlas": _mad(51.6, 100, 54.9, 99.6, 91.4),
}
"""Accuracies on MAD, in percent: Miras, table 8, and Atlas, table 4, which agree where both have
a row. Their models are larger, tuned one by one, and trained longer than any run here."""


@dataclass(frozen=True)
class Claim:
    """A paper's claim about a task, in our words; ``specs`` are the specs that it is about."""

    task: str
    specs: tuple[str, ...]
    text: str
    source: str


CLAIMS: Final = (
    Claim("mqar", ("rls", "linear-attention"), "recursive least squares solves 128 pairs in 64 "
          "dimensions at any length, linear attention does not; both solve 64 pairs",
          "Test-time regression, figure 3"),
    Claim("swaps", ("deltaformer-round", "softmax-attention"), "one layer of DeltaFormer tracks "
          "swaps of five elements, a transformer does not",
          "Transformer as associative memory, figures 4 and 8"),
    Claim("reachability", ("deltaformer", "softmax-attention"), "one layer of DeltaFormer beats "
          "several of a transformer on a graph of 32 nodes",
          "Transformer as associative memory, figure 7"),
    Claim("switching", ("linear-attention", "rls", "softmax-attention", "local-linear-attention"),
          "linear attention is worst, least squares is stuck after the switch, softmax attention "
          "adapts, local linear attention adapts best", "Test-time regression, figure 2"),
    Claim("memorisation", ("atlas", "omeganet", "titans"), "the gain of an omega rule is largest "
          "on memorisation", "Atlas, section 6.5"),
)  # fmt: skip


def claimed(spec: str, task: str) -> float | None:
    """Return the accuracy in percent that a paper gives a system on a task, or None.

    >>> claimed("atlas", "memorisation"), claimed("rls", "mqar")
    (91.4, None)
    """
    return MAD.get(spec, {}).get(task)
