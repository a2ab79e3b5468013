"""Decays and momenta of a chunk as matrices and rows."""

import triton
import triton.language as tl

from .blocks import from_diagonal_blocks, order
from .constants import BASE
from .products import exact


@triton.jit
def segments(log_decay):
    """Compute Π of decays over s < i ≤ t, zero for s > t: [C] → [C, C].

    Sums of the segment itself, never differences: inside blocks of 16 one by one; between blocks
    what is left of the earlier one, the whole ones between, and what the later one has taken.
    """
    C: tl.constexpr = log_decay.shape[0]
    B: tl.constexpr = min(BASE, C)
    N: tl.constexpr = C // B
    t, s = order(C)
    steps = tl.reshape(log_decay, (N, B))
    i, j = tl.arange(0, B)[None, :, None], tl.arange(0, B)[None, None, :]
    within = tl.cumsum(tl.where(i > j, steps[:, :, None], 0.0), 1)
    exponent = from_diagonal_blocks(within)
    if N > 1:
        since = tl.reshape(tl.cumsum(steps, 1), (C,))
        until = tl.reshape(tl.sum(tl.where(i == B - 1, within, 0.0), 1), (C,))
        far = since[:, None] + until[None, :]
        for block in tl.static_range(1, N - 1):
            whole = tl.sum(tl.where(tl.arange(0, N) == block, tl.sum(steps, 1), 0.0), 0)
            far += tl.where((t // B > block) & (s // B < block), whole, 0.0)
        exponent = tl.where(t // B == s // B, exponent, far)
    return tl.where(t >= s, tl.exp(exponent), 0.0)


@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def products(factor):
    """Compute Π of factors over s < i ≤ t, zero for s > t: [C] → [C, C]; zeros are allowed."""
    C: tl.constexpr = factor.shape[0]
    t, s = order(C)
    steps = tl.where(t > s, factor[:, None], 1.0)
    return tl.where(t >= s, tl.associative_scan(steps, 0, _times), 0.0)


@triton.jit
def running_product(x):
    """Compute the product from the chunk's start through each row: [C] → [C]."""
    return tl.associative_scan(x, 0, _times)


@triton.jit
def reach(log_decay):
    """Compute the decay from the chunk's start to each row: [C] → [C]."""
    return tl.exp(tl.cumsum(log_decay, 0))


@triton.jit
def reach_rows(log_decay):
    """Compute the decay from the chunk's start to each row, by channel: [C, K] → [C, K]."""
    return tl.exp(tl.cumsum(log_decay, 0))


@triton.jit
def _sums_behind(sum_behind, behind, own, behind_own):
    """Join rows behind with some rows: return the sum of all, and it without the first row."""
    return sum_behind + own, sum_behind + behind_own


@triton.jit
def remain_rows(log_decay):
    """Compute the decay from each row to the chunk's end, by channel: [C, K] → [C, K].

    Sums of the rows behind alone: taking a row's own logarithm away again would leave no digits of
    the others where it is large.
    """
    none = tl.zeros_like(log_decay)
    _, behind = tl.associative_scan((log_decay, none), 0, _sums_behind, reverse=True)
    return tl.exp(behind)


@triton.jit
def left_at_end(log_decay, live):
    """Compute the decay from each row to the last that is there: [C] → [C]; zero for rows after."""
    t, s = order(log_decay.shape[0])
    since = tl.sum(tl.where((t > s) & (t < live), log_decay[:, None], 0.0), 0)
    return tl.where(tl.arange(0, log_decay.shape[0]) < live, tl.exp(since), 0.0)


@triton.jit
def delayed(x, FILL: tl.constexpr):
    """Give each row the number of the row before, ``FILL`` to the first: [C] → [C]."""
    C: tl.constexpr = x.shape[0]
    t, s = order(C)
    before = tl.sum(tl.where(t == s + 1, x[None, :], 0.0), 1)
    return tl.where(tl.arange(0, C) == 0, FILL, before)


@triton.jit
def delayed_rows(x, PRECISION: tl.constexpr, FILL: tl.constexpr):
    """Give each row the one before, ``FILL`` to the first: [C, K] → [C, K]."""
    C: tl.constexpr = x.shape[0]
    t, s = order(C)
    shift = tl.where(t == s + 1, 1.0, 0.0).to(x.dtype)
    return tl.where(t == 0, FILL, exact(shift, x, PRECISION))


@triton.jit
def last(x, live):
    """Return the number of the last live row: [C] → a number."""
    return tl.sum(tl.where(tl.arange(0, x.shape[0]) == live - 1, x, 0.0), 0)


@triton.jit
def last_row(x, live):
    """Return the last live row: [C, K] → [K]."""
    return tl.sum(tl.where((tl.arange(0, x.shape[0]) == live - 1)[:, None], x, 0.0), 0)
