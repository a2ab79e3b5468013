"""Blocks on the diagonal of a square tile, side by side."""

import triton
import triton.language as tl


@triton.jit
def order(C: tl.constexpr):
    """Return the numbers of C rows as a column and as a row: [C, 1], [1, C]."""
    t = tl.arange(0, C)
    return t[:, None], t[None, :]


@triton.jit
def _same(N: tl.constexpr):
    block = tl.arange(0, N)
    return block[:, None, None, None] == block[None, None, :, None]


@triton.jit
def diagonal_blocks(x, B: tl.constexpr):
    """Cut out the blocks on the diagonal: [C, C] → [C/B, B, B]."""
    N: tl.constexpr = x.shape[0] // B
    return tl.sum(tl.where(_same(N), tl.reshape(x, (N, B, N, B)), 0.0), 2)


@triton.jit
def from_diagonal_blocks(blocks):
    """Put blocks on the diagonal of a matrix, zero elsewhere: [N, B, B] → [N B, N B]."""
    N: tl.constexpr = blocks.shape[0]
    C: tl.constexpr = N * blocks.shape[1]
    return tl.reshape(tl.where(_same(N), blocks[:, :, None, :], 0.0), (C, C))


@triton.jit
def one_of(blocks, block):
    """Pick the block with this number: [N, B, B] → [B, B]."""
    own = (tl.arange(0, blocks.shape[0]) == block)[:, None, None]
    return tl.sum(tl.where(own, blocks, 0.0), 0)
