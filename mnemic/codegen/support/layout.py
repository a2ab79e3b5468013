"""From the operator's layout [B, T, H, …] to the forms' and back."""

import torch
from torch import Tensor


def to_time(x: Tensor) -> Tensor:
    """Put time first: [B, T, H, …] → [T, B·H, …]."""
    return x.transpose(0, 1).flatten(1, 2)


def from_time(y: Tensor, batch: int, heads: int) -> Tensor:
    """Put time behind the batch again: [T, B·H, V] → [B, T, H, V]."""
    return y.unflatten(1, (batch, heads)).transpose(0, 1)


def to_chunks(x: Tensor, size: int) -> Tensor:
    """Cut into chunks of one size: [B, N·C, H, …] → [N, B·H, C, …], contiguous."""
    chunks = x.unflatten(1, (-1, size))  # [B, N, C, H, …]
    return chunks.movedim(1, 0).movedim(3, 2).flatten(1, 2).contiguous()


def from_chunks(y: Tensor, batch: int, heads: int) -> Tensor:
    """Join chunks again: [N, B·H, C, V] → [B, N·C, H, V]."""
    return y.unflatten(1, (batch, heads)).movedim(2, 3).movedim(0, 1).flatten(1, 2)


def windows(x: Tensor, width: int) -> Tensor:
    """Return the last c of each step, oldest first: [B, c − 1 + T, H, …] → [B, T, H, c, …]."""
    unfolded = x.unfold(1, width, 1)
    return unfolded.movedim(-1, 3)


def overlapping(x: Tensor, size: int, width: int) -> Tensor:
    """Cut chunks, with the tail before each: [B, c − 1 + N·C, H, …] → [N, B·H, C + c − 1, …]."""
    unfolded = x.unfold(1, size + width - 1, size)  # [B, N, H, …, C + c − 1]
    return unfolded.movedim(1, 0).movedim(-1, 3).flatten(1, 2).contiguous()


def fold_channels(x: Tensor, times: int, channelled: bool) -> Tensor:
    """Make heads of a diagonal memory's channels: [B, R, H(, d)] → [B, R, H·d]."""
    if channelled:
        return x.flatten(2, 3)
    return x.repeat_interleave(times, 2)


def spread(x: Tensor, times: int, fill: float) -> Tensor:
    """Put values at the first of n steps, ``fill`` at the others: [B, T, …] → [B, T·n, …]."""
    rest = torch.full_like(x, fill)[:, :, None].expand(
        x.shape[0], x.shape[1], times - 1, *x.shape[2:]
    )
    return torch.cat([x[:, :, None], rest], 2).flatten(1, 2)
