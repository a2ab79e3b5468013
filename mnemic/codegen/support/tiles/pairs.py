"""Rows of weights over kept pairs: the largest logit so far, and weights relative to it."""

import triton
import triton.language as tl

from .blocks import order
from .constants import TINY

LOWEST: tl.constexpr = tl.constexpr(-1e30)
"""Below every logit: the largest of none."""


@triton.jit
def weighed(logits, left):
    """Compute logit + log of what is left of a pair; ``LOWEST`` where nothing is."""
    return tl.where(left > TINY, logits + tl.log(tl.maximum(left, TINY)), LOWEST)


@triton.jit
def tops_of(logits, mix):
    """Compute the largest weighed logit of each row: [C, C], [C, C] → [C]."""
    return tl.max(weighed(logits, mix), 1)


@triton.jit
def higher(top, logits, there):
    """Return the larger of a row's top and a block's logits; ``there`` tells the block's pairs."""
    axis: tl.constexpr = len(logits.shape) - 1
    if axis == 1:
        seen = tl.where(there[None, :], logits, LOWEST)
    else:
        seen = tl.where(there, logits, LOWEST)
    return tl.maximum(top, tl.max(seen, axis))


@triton.jit
def settled(top):
    """Return a row's top, 0 for an empty row."""
    return tl.where(top > 0.5 * LOWEST, top, 0.0)


@triton.jit
def exp_over(logits, top):
    """Compute exp(logit − top) row by row."""
    return tl.exp(logits - tl.expand_dims(top, len(top.shape)))


@triton.jit
def exp_over_left(logits, top, left):
    """Compute exp(logit − top) row by row, 0 where nothing is left of a pair."""
    shifted = logits - tl.expand_dims(top, len(top.shape))
    return tl.exp(tl.where(left > TINY, shifted, LOWEST))


@triton.jit
def over_total(x, total):
    """Divide rows by their sums, 0 where a row is empty: [C, V], [C] → [C, V]."""
    empty = total == 0
    share = tl.where(empty, 0.0, 1.0 / tl.where(empty, 1.0, total))
    return x * tl.expand_dims(share, len(share.shape))


@triton.jit
def recent_of(like, SPAN: tl.constexpr):
    """Put 1 where 0 ≤ t − s < SPAN, 0 elsewhere: → [C, C]."""
    t, s = order(like.shape[0])
    return tl.where((t >= s) & (t - s < SPAN), 1.0, 0.0).to(like.dtype)


@triton.jit
def elapsed(rows, pairs, REAL: tl.constexpr):
    """Compute what is left of pairs at rows, as differences of float64: [C], [S] → [C, S]."""
    return (pairs[None, :] - rows[:, None]).to(REAL)


@triton.jit
def key_size(x, width):
    """Return the number of channels, a number a row: → [C]."""
    return tl.zeros((x.shape[0],), x.dtype) + width


@triton.jit
def first_behind(pair, before, first, ROWS: tl.constexpr):
    """Return the first chunk of rows behind a pair, where ``before`` pairs are before the rows:
    chunk c begins with row 0 or, from the second on, with row first + (c − 1) ROWS."""
    return tl.where(pair < before, 0, (pair - before - first + ROWS) // ROWS + 1)
