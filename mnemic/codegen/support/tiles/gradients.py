"""What gradients need beside the forms' own functions."""

import triton
import triton.language as tl

from .blocks import diagonal_blocks, order
from .constants import BASE
from .products import exact
from .sums import channels, standardised


@triton.jit
def at_last_row(x, like, live):
    """Put a vector into the last of the rows that are there, zero elsewhere: [K] → [C, K]."""
    return tl.where((tl.arange(0, like.shape[0]) == live - 1)[:, None], x[None, :], 0.0)


@triton.jit
def at_last(x, like, live):
    """Put a number into the last of the rows that are there, zero elsewhere: a number → [C]."""
    return tl.where(tl.arange(0, like.shape[0]) == live - 1, x, 0.0)


@triton.jit
def without_last(x, live):
    """Put zero into the last of the rows that are there: [C, K] → [C, K]."""
    return tl.where((tl.arange(0, x.shape[0]) == live - 1)[:, None], 0.0, x)


@triton.jit
def later_sums(x):
    """Compute Σ_{t ≥ i} x_t: [C] → [C]."""
    return tl.cumsum(x, 0, reverse=True)


@triton.jit
def later_rows(x):
    """Compute Σ_{t ≥ i} x_t: [C, K] → [C, K]."""
    return tl.cumsum(x, 0, reverse=True)


@triton.jit
def earlier_sums(x):
    """Compute Σ_{s < i} x_s: [C] → [C]."""
    return tl.cumsum(x, 0) - x


@triton.jit
def earlier_rows(x):
    """Compute Σ_{s < i} x_s: [C, K] → [C, K]."""
    return tl.cumsum(x, 0) - x


@triton.jit
def between(x):
    """Compute Σ_{t ≥ i > s} x_ts: [C, C] → [C].

    By blocks of 16: rows of i's block against earlier blocks, later blocks against sources of i's
    block, later blocks against earlier ones, and pairs inside.
    """
    C: tl.constexpr = x.shape[0]
    B: tl.constexpr = min(BASE, C)
    N: tl.constexpr = C // B
    i, j = tl.arange(0, B)[None, :, None], tl.arange(0, B)[None, None, :]
    later = tl.cumsum(tl.where(i > j, diagonal_blocks(x, B), 0.0), 1, reverse=True)
    found = tl.sum(tl.where(i > j, later, 0.0), 2)
    if N > 1:
        t, s = order(C)
        apart = tl.where(t // B > s // B, x, 0.0)
        taken = tl.reshape(tl.sum(apart, 1), (N, B))
        left = tl.reshape(tl.sum(apart, 0), (N, B))
        found += tl.cumsum(taken, 1, reverse=True) + tl.cumsum(left, 1) - left
        for block in tl.static_range(1, N - 1):
            across = tl.where((t // B > block) & (s // B < block), x, 0.0)
            whole = tl.sum(tl.sum(across, 1), 0)
            found += tl.where(tl.arange(0, N) == block, whole, 0.0)[:, None]
    return tl.reshape(found, (C,))


@triton.jit
def as_rows(x, like):
    """Repeat a vector for every row: [K] → [C, K]."""
    return tl.zeros_like(like) + x[None, :]


@triton.jit
def advanced(x):
    """Give each row the number of the next, zero to the last: [C] → [C]."""
    t, s = order(x.shape[0])
    return tl.sum(tl.where(s == t + 1, x[None, :], 0.0), 1)


@triton.jit
def advanced_rows(x, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """Give each row the one ``ROWS`` further on, zero to the last ones: [C, K] → [C, K]."""
    t, s = order(x.shape[0])
    shift = tl.where(s == t + ROWS, 1.0, 0.0).to(x.dtype)
    return exact(shift, x, PRECISION)


@triton.jit
def layer_norm_bend(d, grad, z, width):
    """Compute ∂(dᵀ J(z) g)/∂z for the Jacobian J of LayerNorm: see ``ops.layer_norm_bend``."""
    axis: tl.constexpr = len(z.shape) - 1
    unit, scale = standardised(z, width)
    there = channels(z) < width
    g = tl.where(there, grad - tl.sum(grad, axis, keep_dims=True) / width, 0.0)
    bar = tl.where(there, d - tl.sum(d, axis, keep_dims=True) / width, 0.0)
    a = tl.sum(g * unit, axis, keep_dims=True) / width
    b = tl.sum(bar * unit, axis, keep_dims=True) / width
    both = tl.sum(g * bar, axis, keep_dims=True) / width
    return -(unit * (both - 3.0 * a * b) + b * g + a * bar) * scale * scale
