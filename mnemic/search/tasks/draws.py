"""Random tensors that several tasks draw."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemic.search.tasks.base import IGNORED, Batch


def integers(generator: torch.Generator, high: int, *shape: int) -> Tensor:
    """Draw uniform integers of [0, high)."""
    return torch.randint(high, shape, generator=generator)


def distinct(generator: torch.Generator, size: int, choices: int, count: int) -> Tensor:
    """Draw [size, count]: in each row, ``count`` different integers of [0, choices)."""
    return torch.rand(size, choices, generator=generator).topk(count).indices


def first_equal(codes: Tensor) -> Tensor:
    """Return [B, P]: the first position in its row that holds the same number as each position."""
    same = codes[:, :, None] == codes[:, None, :]
    return same.to(torch.uint8).argmax(-1)


def shifted(tokens: Tensor, scored: Tensor) -> Batch:
    """Return each token but the last, with the next one as its target where that is scored.

    Args:
        tokens: [B, T + 1].
        scored: [B, T + 1]: whether a token is to be predicted.
    """
    return Batch(tokens[:, :-1], torch.where(scored, tokens, IGNORED)[:, 1:])
