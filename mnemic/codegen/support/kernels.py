"""A memory behind a kernel: rows of weights over their sums, and rows kept with their keys.

n counts kept pairs; a row's coefficients are how much of each pair's row is left. Exponentials are
taken relative to the largest weight of their row. A pair of which less than ``TINY`` is left is
gone, so that decays may be as strong as they like while logits differ by no more than 69.
"""

from typing import Any

import torch
from torch import Tensor

from .kept import append_rows
from .rows import TINY
from .transforms import transformed


class _Rounded(torch.autograd.Function):
    """The nearest integer, ties to even; the gradient passes as if nothing were rounded."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        del ctx
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        del ctx
        return grads[0]


def rounded(x: Tensor) -> Tensor:
    """Compute round(x) with a straight-through gradient."""
    if transformed():
        return x + (torch.round(x) - x).detach()
    found: Tensor = _Rounded.apply(x)
    return found


# -- rows of weights over their sums ---------------------------------------------------------


def row_top(logits: Tensor, coefficients: Tensor | None = None) -> Tensor:
    """Compute max_i (logit_i + log c_i), 0 for an empty row, no gradient: [..., n] → [...]."""
    held = _weighed(logits.detach(), coefficients)
    if not held.shape[-1]:
        return held.new_zeros(held.shape[:-1])
    top = held.amax(-1)
    return torch.where(torch.isfinite(top), top, 0.0)


def row_tops(past: Tensor, new: Tensor, mix: Tensor, coefficients: Tensor | None = None) -> Tensor:
    """Compute rows' max (logit + log c) over kept pairs [..., C, n] and own ones [..., C, S]."""
    held = torch.cat([_weighed(past.detach(), coefficients), _weighed(new.detach(), mix)], -1)
    return row_top(held)


def _weighed(logits: Tensor, coefficients: Tensor | None) -> Tensor:
    if coefficients is None:
        return logits
    left = coefficients.detach()
    return torch.where(left > TINY, logits + torch.log(left.clamp_min(TINY)), -torch.inf)


def exp_over(logits: Tensor, top: Tensor, coefficients: Tensor | None = None) -> Tensor:
    """Compute exp(logit − top), 0 where nothing is left of a pair: [..., n], [...] → [..., n]."""
    shifted = logits - top[..., None]
    if coefficients is not None:
        shifted = shifted.masked_fill(coefficients <= TINY, -torch.inf)
    return torch.exp(shifted)


def row_total(weights: Tensor, coefficients: Tensor | None = None) -> Tensor:
    """Compute Σ_i c_i w_i of each row: [..., n] → [...]."""
    return weights.sum(-1) if coefficients is None else (weights * coefficients).sum(-1)


def row_totals(past: Tensor, mixed: Tensor, coefficients: Tensor | None = None) -> Tensor:
    """Compute Σ c w over kept pairs [..., C, n] and a chunk's own c w [..., C, S]: → [..., C]."""
    return row_total(past, coefficients) + mixed.sum(-1)


def over_total(x: Tensor, total: Tensor) -> Tensor:
    """Compute x over its row's sum, 0 where the row is empty: [..., V], [...] → [..., V]."""
    empty = total == 0
    return (x / torch.where(empty, 1.0, total)[..., None]).masked_fill(empty[..., None], 0.0)


# -- rows kept with their keys ---------------------------------------------------------------


def newest(x: Tensor) -> Tensor:
    """Return a window's last slot: [..., c, K] → [..., K]."""
    return x[..., -1, :]


def own_rows(x: Tensor, like: Tensor) -> Tensor:
    """Return a chunk's rows without the tail before them: [..., c − 1 + C, K] → [..., C, K]."""
    return x[..., x.shape[-2] - like.shape[-2] :, :]


def from_first(x: Tensor, *, tail: int) -> Tensor:
    """Return rows without the tail before the first: [B, tail + R, …] → [B, R, …]."""
    return x[:, tail:]


def with_zeros(kept: Tensor, like: Tensor) -> Tensor:
    """Append zeros for new pairs: [M, n, V], [M, C, ·] or [M, ·] → [M, n + C, V]; or to [M, n]."""
    count = like.shape[1] if like.ndim > 2 else 1
    return append_rows(kept, kept.new_zeros(kept.shape[0], count, *kept.shape[2:]))


def with_ones(kept: Tensor, like: Tensor) -> Tensor:
    """Append a one for every new pair: [M, n], [M, C, ·] or [M, ·] → [M, n + C]."""
    count = like.shape[1] if like.ndim > 2 else 1
    return append_rows(kept, kept.new_ones(kept.shape[0], count))


def as_row(coefficients: Tensor) -> Tensor:
    """Give every row the same coefficients: [M, n] → [M, 1, n]."""
    return coefficients[..., None, :]


def ones_of(keys: Tensor) -> Tensor:
    """Return a one for every pair: [M, n, K] → [M, n]."""
    return torch.ones_like(keys[..., 0])


def folded(rows: Tensor, *, width: int) -> Tensor:
    """Add up windows' rows by their token: [..., C·c, V] → [..., c − 1 + C, V]."""
    count = rows.shape[-2] // width
    windows = rows.unflatten(-2, (count, width))
    found = rows.new_zeros(*rows.shape[:-2], width - 1 + count, rows.shape[-1])
    for slot in range(width):
        behind = (0, 0, slot, width - 1 - slot)
        found = found + torch.nn.functional.pad(windows[..., slot, :], behind)
    return found


def grown(kept: Tensor, rows: Tensor, *, tail: int) -> Tensor:
    """Add the first ``tail`` rows to the last kept pairs, and append the others.

    [M, n, V], [M, tail + C, V] → [M, n + C, V]; before a document's start the tail has no pairs.
    """
    there = min(tail, kept.shape[1])
    late = kept[:, kept.shape[1] - there :] + rows[:, tail - there : tail]
    return torch.cat([kept[:, : kept.shape[1] - there], late, rows[:, tail:]], 1)
