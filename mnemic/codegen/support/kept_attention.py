"""Softmax attention over kept pairs, by PyTorch's own kernels; keys behind a window are left out.

Rows are the last ones of the kept pairs: row r of C sees the pairs up to n − C + r.
"""

from contextlib import nullcontext
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from .transforms import transformed

FEWEST, WIDEST = 64, 512
"""Rows that share a mask: it is [rows, pairs that they see], never [T, T]."""


def key_size(x: Tensor) -> Tensor:
    """Return d_k as a number a row: [..., d_k] → [...]."""
    return torch.full_like(x[..., 0], x.shape[-1])


def squares(x: Tensor) -> Tensor:
    """Compute ‖x‖²: [..., d] → [...]."""
    return (x * x).sum(-1)


def beside(x: Tensor, column: Tensor) -> Tensor:
    """Append one channel: [..., d], [...] → [..., d + 1]."""
    return torch.cat([x, column[..., None]], -1)


class Block(NamedTuple):
    """Rows first … end and the pairs oldest … newest that they see."""

    first: int
    end: int
    oldest: int
    newest: int


def blocks(rows: int, kept: int, span: int, size: int) -> list[Block]:
    """Cut rows into blocks of one size, each with the pairs that it sees."""
    before, found = kept - rows, []
    for first in range(0, rows, size):
        end = min(first + size, rows)
        oldest = max(0, before + first - span + 1) if span else 0
        found.append(Block(first, end, oldest, before + end))
    return found


def visible(first: int, end: int, oldest: int, newest: int, before: int, *, span: int,
            device: torch.device) -> Tensor:  # fmt: skip
    """Return which pairs each row of a block sees, [end − first, newest − oldest]."""
    own = torch.arange(before + first, before + end, device=device)[:, None]
    pair = torch.arange(oldest, newest, device=device)
    seen = pair <= own
    return seen & (pair > own - span) if span else seen


def cuts(pairs: Tensor, found: list[Block]) -> list[Tensor]:
    """Cut out the pairs that each block sees: [..., n, K] → [..., newest − oldest, K].

    They are put together from one split of all pairs, so that a gradient is put together once: that
    of a slice is as long as all pairs, and as many of them as blocks take time that is quadratic.
    """
    bounds = sorted({0, pairs.shape[-2], *(b.oldest for b in found), *(b.newest for b in found)})
    pieces = pairs.split([end - begin for begin, end in pairwise(bounds)], -2)
    place = {bound: i for i, bound in enumerate(bounds)}
    return [torch.cat(pieces[place[b.oldest] : place[b.newest]], -2) for b in found]


def attention(q: Tensor, keys: Tensor, values: Tensor, *, span: int = 0) -> Tensor:
    """Compute softmax(Q Kᵀ) V over the pairs that a row sees: [M, C, K], [M, n, K], [M, n, V].

    ``span`` is the window c, 0 without one. Forward derivatives go through products and a softmax:
    PyTorch's fused kernels have none.
    """
    with sdpa_kernel(SDPBackend.MATH) if transformed() else nullcontext():
        return _attention(q, keys, values, span)


def _attention(q: Tensor, keys: Tensor, values: Tensor, span: int) -> Tensor:
    rows, kept, channels = q.shape[-2], keys.shape[-2], values.shape[-1]
    width = max(q.shape[-1], channels)  # the fused kernels ask for one size
    q, keys, values = (pad(x, (0, width - x.shape[-1]))[None] for x in (q, keys, values))
    alone = not span or kept <= span
    if rows == 1 and alone:
        y = scaled_dot_product_attention(q, keys, values, scale=1.0)
    elif rows == kept and alone:
        y = scaled_dot_product_attention(q, keys, values, is_causal=True, scale=1.0)
    else:
        size = max(FEWEST, min(span, WIDEST)) if span else WIDEST
        found, parts = blocks(rows, kept, span, size), []
        seen = zip(found, q.split(size, -2), cuts(keys, found), cuts(values, found), strict=True)
        for (first, end, oldest, newest), q_b, keys_b, values_b in seen:
            mask = visible(first, end, oldest, newest, kept - rows, span=span, device=q.device)
            parts.append(
                scaled_dot_product_attention(q_b, keys_b, values_b, attn_mask=mask, scale=1.0)
            )
        y = torch.cat(parts, -2)
    return y[0, ..., :channels]
