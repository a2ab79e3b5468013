"""Rows and blocks of tiles, for systems that are solved row by row."""

import triton
import triton.language as tl


@triton.jit
def rows_of(x, block, B: tl.constexpr):
    """Cut out the rows of one block: [C, V] → [B, V]."""
    N: tl.constexpr = x.shape[0] // B
    own = (tl.arange(0, N) == block)[:, None, None]
    return tl.sum(tl.where(own, tl.reshape(x, (N, B, x.shape[1])), 0.0), 0)


@triton.jit
def block_of(x, block, B: tl.constexpr):
    """Cut out a block of the diagonal: [C, C] → [B, B]."""
    N: tl.constexpr = x.shape[0] // B
    own = tl.arange(0, N) == block
    both = own[:, None, None, None] & own[None, None, :, None]
    return tl.sum(tl.sum(tl.where(both, tl.reshape(x, (N, B, N, B)), 0.0), 2), 0)


@triton.jit
def row_of(x, i):
    """Cut out one row: [B, V] → [1, V]."""
    own = (tl.arange(0, x.shape[0]) == i)[:, None]
    return tl.sum(tl.where(own, x, 0.0), 0, keep_dims=True)


@triton.jit
def column_of(x, i):
    """Cut out one column: [B, B] → [B, 1]."""
    own = (tl.arange(0, x.shape[1]) == i)[None, :]
    return tl.sum(tl.where(own, x, 0.0), 1, keep_dims=True)


@triton.jit
def with_row(x, row, i):
    """Put a row in the place of another: [B, V], [1, V] → [B, V]."""
    return tl.where((tl.arange(0, x.shape[0]) == i)[:, None], row, x)


@triton.jit
def with_rows(x, rows, block, B: tl.constexpr):
    """Put rows in the place of one block's: [C, V], [B, V] → [C, V]."""
    N: tl.constexpr = x.shape[0] // B
    own = (tl.arange(0, N) == block)[:, None, None]
    put = tl.where(own, rows[None, :, :], tl.reshape(x, (N, B, x.shape[1])))
    return tl.reshape(put, (x.shape[0], x.shape[1]))


@triton.jit
def closes(position, done, EVERY: tl.constexpr, STEPS: tl.constexpr):
    """Return whether an interval of the document ends with these rows."""
    return (done % STEPS == 0) & ((position + done // STEPS) % EVERY == 0)
