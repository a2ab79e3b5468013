"""Lower triangles, and the inverse of a unit one."""

import triton
import triton.language as tl

from .constants import BASE
from .decays import order
from .products import exact


@triton.jit
def lower(x):
    """The lower triangle with its diagonal."""
    t, s = order(x.shape[0])
    return tl.where(t >= s, x, 0.0)


@triton.jit
def strictly_lower(x, ROWS: tl.constexpr):
    """Zero on and above the diagonal of blocks of ``ROWS``."""
    t, s = order(x.shape[0])
    return tl.where(t // ROWS > s // ROWS, x, 0.0)


@triton.jit
def lower_ones(like):
    """[C] → [C, C] lower triangle of ones."""
    t, s = order(like.shape[0])
    return tl.where(t >= s, 1.0, 0.0).to(like.dtype)


@triton.jit
def lower_ones_of(like):
    """[C, K] → [C, C] lower triangle of ones."""
    t, s = order(like.shape[0])
    return tl.where(t >= s, 1.0, 0.0).to(like.dtype)


@triton.jit
def unit_lower_inverse(strict, PRECISION: tl.constexpr):
    """(I + L)⁻¹ of a strictly lower triangular L: rows inside blocks of 16, then block merges.

    A merge of blocks D with what stands left of them is D⁻¹ − D⁻¹ L D⁻¹.
    """
    C: tl.constexpr = strict.shape[0]
    B: tl.constexpr = min(BASE, C)
    out = _unit_lower_blocks(strict, B)
    size: tl.constexpr = B
    if 2 * size <= C:
        out = _merged(out, strict, 2 * size, size, PRECISION)
    if 4 * size <= C:
        out = _merged(out, strict, 4 * size, 2 * size, PRECISION)
    if 8 * size <= C:
        out = _merged(out, strict, 8 * size, 4 * size, PRECISION)
    return out


@triton.jit
def _merged(inverse, strict, WHOLE: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr):
    t, s = order(strict.shape[0])
    corner = (t // WHOLE == s // WHOLE) & (t // HALF > s // HALF)
    between = exact(inverse, tl.where(corner, strict, 0.0), PRECISION)
    return inverse - exact(between, inverse, PRECISION)


@triton.jit
def _unit_lower_blocks(strict, B: tl.constexpr):
    """The inverses of the diagonal blocks, one row of all blocks after another."""
    C: tl.constexpr = strict.shape[0]
    N: tl.constexpr = C // B
    block = tl.arange(0, N)
    same = block[:, None, None, None] == block[None, None, :, None]
    blocks = tl.sum(tl.where(same, tl.reshape(strict, (N, B, N, B)), 0.0), 2)
    row = tl.arange(0, B)
    eye = (row[:, None] == row[None, :])[None, :, :]
    found = tl.where(eye, 1.0, tl.zeros((N, B, B), strict.dtype))
    for i in range(1, B):
        weights = tl.sum(tl.where((row == i)[None, :, None], blocks, 0.0), 1)
        update = tl.sum(weights[:, :, None] * found, 1)
        found = tl.where((row == i)[None, :, None], found - update[:, None, :], found)
    whole = tl.where(same, found[:, :, None, :], 0.0)
    return tl.reshape(whole, (C, C))
