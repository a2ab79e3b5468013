"""Lower triangles, and the inverse of a unit one."""

import triton
import triton.language as tl

from .blocks import diagonal_blocks, from_diagonal_blocks, order
from .constants import BASE
from .products import exact


@triton.jit
def lower(x):
    """Return the lower triangle with its diagonal, zero above."""
    t, s = order(x.shape[0])
    return tl.where(t >= s, x, 0.0)


@triton.jit
def strictly_lower(x, ROWS: tl.constexpr):
    """Put zero on and above the diagonal of blocks of ``ROWS``."""
    t, s = order(x.shape[0])
    return tl.where(t // ROWS > s // ROWS, x, 0.0)


@triton.jit
def lower_ones(like):
    """Return the lower triangle of ones that goes with C numbers: [C] → [C, C]."""
    t, s = order(like.shape[0])
    return tl.where(t >= s, 1.0, 0.0).to(like.dtype)


@triton.jit
def lower_ones_of(like):
    """Return the lower triangle of ones that goes with C rows: [C, K] → [C, C]."""
    t, s = order(like.shape[0])
    return tl.where(t >= s, 1.0, 0.0).to(like.dtype)


@triton.jit
def unit_lower_inverse(strict, PRECISION: tl.constexpr):
    """Compute (I + L)⁻¹ of a strictly lower triangular L: pairs of neighbouring blocks become one.

    A merge of inverted blocks T with what stands between them is T − T L T: within blocks of 16,
    from single entries on, all blocks side by side; then among whole rows.
    """
    C: tl.constexpr = strict.shape[0]
    B: tl.constexpr = min(BASE, C)
    blocks = diagonal_blocks(strict, B)
    t, s = tl.arange(0, B)[None, :, None], tl.arange(0, B)[None, None, :]
    found = tl.where(t == s, 1.0, tl.where(t // 2 == s // 2, -blocks, 0.0))
    if B > 2:
        found = _merged(found, blocks, t, s, 4, 2, PRECISION)
    if B > 4:
        found = _merged(found, blocks, t, s, 8, 4, PRECISION)
    if B > 8:
        found = _merged(found, blocks, t, s, 16, 8, PRECISION)
    out = from_diagonal_blocks(found)
    t, s = order(C)
    if 2 * B <= C:
        out = _merged(out, strict, t, s, 2 * B, B, PRECISION)
    if 4 * B <= C:
        out = _merged(out, strict, t, s, 4 * B, 2 * B, PRECISION)
    if 8 * B <= C:
        out = _merged(out, strict, t, s, 8 * B, 4 * B, PRECISION)
    return out


@triton.jit
def _merged(
    inverse, strict, t, s, WHOLE: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    corner = (t // WHOLE == s // WHOLE) & (t // HALF > s // HALF)
    between = exact(inverse, tl.where(corner, strict, 0.0), PRECISION)
    return inverse - exact(between, inverse, PRECISION)
