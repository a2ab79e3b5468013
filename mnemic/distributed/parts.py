"""Which part of a sequence a process has, and what its tokens are scored against."""

from __future__ import annotations

from torch import Tensor, distributed
from torch.nn.functional import pad

NOT_SCORED = -100


def part(x: Tensor, group: distributed.ProcessGroup | None = None, dim: int = 1) -> Tensor:
    """Return this process's part of a sequence, [B, T, …] → [B, T / n, …]: parts in their order.

    Args:
        x: the whole sequence.
        group: the processes that share it, n of them.
        dim: the axis of tokens.

    Raises:
        ValueError: T is no multiple of n.
    """
    count, length = distributed.get_world_size(group), x.shape[dim]
    if length % count:
        raise ValueError(f"part: read {length} tokens, a multiple of the {count} processes needed")
    return x.chunk(count, dim)[distributed.get_rank(group)] if length else x


def shifted(labels: Tensor) -> Tensor:
    """Return for each token the one after it, [B, T] → [B, T]; nothing is scored behind the last.

    A sequence's labels are shifted before it is cut, since a part's last token is scored against
    the next part's first.

    >>> import torch
    >>> shifted(torch.tensor([[5, 6, 7]]))
    tensor([[   6,    7, -100]])
    """
    return pad(labels[:, 1:], (0, 1), value=NOT_SCORED)
