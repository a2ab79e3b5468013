"""Sums, reads of memories, norms of rows."""

import triton
import triton.language as tl

from .constants import TINY


@triton.jit
def matrix_rows(matrix, x):
    """Compute M x: [C, S], [S] → [C]."""
    return tl.sum(matrix * x[None, :], 1)


@triton.jit
def vector_matrix(x, matrix):
    """Compute xᵀ M: [C], [C, S] → [S]."""
    return tl.sum(matrix * x[:, None], 0)


@triton.jit
def recall(memory, x):
    """Compute M x: [V, K], [K] → [V]."""
    return tl.sum(memory * x[:, None], 0)


@triton.jit
def pull(memory, x):
    """Compute Mᵀ x: [V, K], [V] → [K]."""
    return tl.sum(memory * x[None, :], 1)


@triton.jit
def recall_row(vector, x):
    """Compute n·x for every row: [K], [C, K] → [C]."""
    return tl.sum(x * vector[None, :], 1)


@triton.jit
def weigh(weights):
    """Compute Σ_s weights_ts: [C, S] → [C]."""
    return tl.sum(weights, 1)


@triton.jit
def weigh_rated(weights, rate):
    """Compute Σ_s weights_ts rate_s: [C, S], [S] → [C]."""
    return tl.sum(weights * rate[None, :], 1)


@triton.jit
def total(x):
    """Add up channels, the last axis."""
    return tl.sum(x, len(x.shape) - 1)


@triton.jit
def total_rows(x, live):
    """Add up the rows that are there: [C, K] → [K]."""
    return tl.sum(tl.where((tl.arange(0, x.shape[0]) < live)[:, None], x, 0.0), 0)


@triton.jit
def total_of_matrix(x):
    """Add up the columns of a memory: [V, K] → [V]."""
    return tl.sum(x, 0)


@triton.jit
def total_rows_of_matrix(x):
    """Add up the rows of a memory: [V, K] → [K]."""
    return tl.sum(x, 1)


@triton.jit
def squared_norm(x):
    """Compute κ = ‖x‖² over the last axis, at least ``TINY``."""
    return tl.maximum(tl.sum(x * x, len(x.shape) - 1), TINY)


@triton.jit
def distance(y, v):
    """Compute n = ‖ŷ − v‖ over the value channels, 1 at an exact hit."""
    size = tl.sqrt(tl.sum((y - v) * (y - v), len(y.shape) - 1))
    return tl.where(size > TINY, size, 1.0)


@triton.jit
def layer_norm(z, width):
    """Apply LayerNorm without affine over the channels that are there, ε = 1e-5."""
    unit, _ = standardised(z, width)
    return unit


@triton.jit
def standardised(z, width):
    axis: tl.constexpr = len(z.shape) - 1
    there = channels(z) < width
    centred = tl.where(there, z - tl.sum(z, axis, keep_dims=True) / width, 0.0)
    variance = tl.sum(centred * centred, axis, keep_dims=True) / width
    scale = 1.0 / tl.sqrt(variance + 1e-5)
    return centred * scale, scale


@triton.jit
def channels(z):
    if len(z.shape) == 2:
        return tl.arange(0, z.shape[1])[None, :]
    else:
        return tl.arange(0, z.shape[0])


@triton.jit
def layer_norm_vjp(grad, z, width):
    """Compute the gradient of LayerNorm: (g − mean g − ẑ mean(g ẑ)) / σ."""
    axis: tl.constexpr = len(z.shape) - 1
    unit, scale = standardised(z, width)
    mean = tl.sum(grad, axis, keep_dims=True) / width
    along = tl.sum(grad * unit, axis, keep_dims=True) / width
    inner = tl.where(channels(z) < width, grad - mean - unit * along, 0.0)
    return inner * scale


@triton.jit
def as_vector(x, like):
    """Repeat a number a row in all of the row's channels (or one number in one vector)."""
    if len(like.shape) == 2:
        return tl.zeros_like(like) + tl.expand_dims(x, 1)
    else:
        return tl.zeros_like(like) + x


@triton.jit
def constant(like, VALUE: tl.constexpr):
    """Return the number ``VALUE`` in the type of ``like``'s entries."""
    return tl.sum(tl.sum(tl.zeros_like(like), 0), 0) + VALUE


@triton.jit
def filled(like, VALUE: tl.constexpr):
    """Return a constant in the shape of ``like``."""
    return tl.zeros_like(like) + VALUE


@triton.jit
def replaced_last(y, end, live):
    """Put ``end`` in the place of the last row that is there: [C, V], [V] → [C, V]."""
    at_end = tl.arange(0, y.shape[0]) == live - 1
    return tl.where(at_end[:, None], end[None, :], y)


@triton.jit
def norm(x):
    """Compute ‖x‖ over the value channels; 1 where it is zero."""
    size = tl.sqrt(tl.sum(x * x, len(x.shape) - 1))
    return tl.where(size > TINY, size, 1.0)


@triton.jit
def norm_column(x):
    """Compute ‖x‖ over the value channels as a column; 1 where it is zero."""
    return tl.expand_dims(norm(x), len(x.shape) - 1)
