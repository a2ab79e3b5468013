"""Random tensors that several tasks draw."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemic.search.tasks.base import IGNORED, Batch


def integers(generator: torch.Generator, high: int, *shape: int) -> Tensor:
    """Uniform integers of [0, high)."""
    return torch.randint(high, shape, generator=generator)


def distinct(generator: torch.Generator, size: int, choices: int, count: int) -> Tensor:
    """[size, count]: in each row, ``count`` different integers of [0, choices)."""
    return torch.rand(size, choices, generator=generator).topk(count).indices


def first_equal(codes: Tensor) -> Tensor:
    """[B, P]: the first position of each row that holds the same number as this position."""
    same = codes[:, :, None] == codes[:, None, :]
    return same.to(torch.uint8).argmax(-1)


def shifted(tokens: Tensor, scored: Tensor) -> Batch:
    """Each token but the last, and at each the next one, where that one is scored.

    Args:
        tokens: [B, T + 1].
        scored: [B, T + 1]: whether a token is to be predicted.
    """
    return Batch(tokens[:, :-1], torch.where(scored, tokens, IGNORED)[:, 1:])
