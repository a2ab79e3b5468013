"""What acts on whole memories: norms, simplices, Newton–Schulz."""

import triton
import triton.language as tl

from .constants import TINY
from .products import dot, turned
from .scalars import fourth, power


@triton.jit
def _of_all(x):
    return tl.sum(tl.sum(x, 1), 0)


@triton.jit
def entry_norm(x, POWER: tl.constexpr):
    """Compute ‖A‖_p over the entries, at least ``TINY``."""
    largest = tl.maximum(tl.max(tl.max(tl.abs(x), 1), 0), TINY)
    unit = tl.abs(x) / largest
    if POWER == 2.0:
        size = tl.sqrt(_of_all(unit * unit))
    elif POWER == 4.0:
        size = tl.sqrt(tl.sqrt(_of_all(fourth(unit))))
    else:
        size = power(_of_all(power(unit, POWER)), 1.0 / POWER)
    return tl.maximum(size * largest, TINY)


@triton.jit
def largest(x):
    """Compute max |A_vk|, at least ``TINY``."""
    return tl.maximum(tl.max(tl.max(tl.abs(x), 1), 0), TINY)


@triton.jit
def _inside(x, rows, columns):
    """Put −∞ in place of entries that are not there."""
    return tl.where(columns[:, None] & rows[None, :], x, float("-inf"))


@triton.jit
def highest(x, rows, columns):
    """Compute max A_vk over the rows and columns that are there."""
    return tl.max(tl.max(_inside(x, rows, columns), 1), 0)


@triton.jit
def highest_of_rows(x, rows, columns):
    """Compute max A_vk of each row: [V, K] → [V]; 0 of rows that are not there."""
    return tl.where(rows, tl.max(_inside(x, rows, columns), 0), 0.0)


@triton.jit
def highest_of_columns(x, rows, columns):
    """Compute max A_vk of each column: [V, K] → [K]; 0 of columns that are not there."""
    return tl.where(columns, tl.max(_inside(x, rows, columns), 1), 0.0)


@triton.jit
def simplex(exponent, scale, rows, columns, OVER: tl.constexpr):
    """Compute scale · softmax(exponent) over the matrix [rows, columns], or its rows or columns."""
    there = tl.arange(0, exponent.shape[0])[:, None] < columns
    there = there & (tl.arange(0, exponent.shape[1])[None, :] < rows)
    z = tl.where(there, exponent, float("-inf"))
    if OVER == "rows":
        largest = tl.max(z, 0, keep_dims=True)
    elif OVER == "columns":
        largest = tl.max(z, 1, keep_dims=True)
    else:
        largest = tl.max(tl.max(z, 1, keep_dims=True), 0, keep_dims=True)
    weights = tl.where(there, tl.exp(exponent - tl.maximum(largest, -1e30)), 0.0)
    if OVER == "rows":
        whole = tl.sum(weights, 0, keep_dims=True)
    elif OVER == "columns":
        whole = tl.sum(weights, 1, keep_dims=True)
    else:
        whole = tl.sum(tl.sum(weights, 1, keep_dims=True), 0, keep_dims=True)
    return scale * weights / tl.where(whole > 0, whole, 1.0)


@triton.jit
def ball(x, radius):
    """Project on ‖W‖_F ≤ radius."""
    return x * tl.minimum(radius / entry_norm(x, 2.0), 1.0)


@triton.jit
def _largest_along(memory, AXIS: tl.constexpr):
    """Compute the largest entry's size of each row (axis ``v``) or column, at least ``TINY``."""
    if AXIS == "v":
        found = tl.max(tl.abs(memory), 0, keep_dims=True)
    else:
        found = tl.max(tl.abs(memory), 1, keep_dims=True)
    return tl.maximum(found, TINY)


@triton.jit
def scaled_to_norms(memory, norms, AXIS: tl.constexpr):
    """Scale rows (axis ``v``) or columns (``k``) to given norms; zero ones stay zero.

    The largest entry is taken out first: what has faded has no square in float32.
    """
    most = _largest_along(memory, AXIS)
    plain = memory / tl.where(most > TINY, most, 1.0)
    if AXIS == "v":
        size = tl.sqrt(tl.sum(plain * plain, 0, keep_dims=True))
        wanted = norms[None, :]
    else:
        size = tl.sqrt(tl.sum(plain * plain, 1, keep_dims=True))
        wanted = norms[:, None]
    return plain * (wanted / tl.where(most > TINY, size, 1.0))


@triton.jit
def centred(memory, rows, columns, AXIS: tl.constexpr):
    """Subtract the means of rows (axis ``v``) or columns (``k``) of the matrix [rows, columns]."""
    there = tl.arange(0, memory.shape[0])[:, None] < columns
    there = there & (tl.arange(0, memory.shape[1])[None, :] < rows)
    x = tl.where(there, memory, 0.0)
    if AXIS == "v":
        mean = tl.sum(x, 0, keep_dims=True) / columns
    else:
        mean = tl.sum(x, 1, keep_dims=True) / rows
    return tl.where(there, x - mean, 0.0)


@triton.jit
def newton_schulz(matrix, PRECISION: tl.constexpr, STEPS: tl.constexpr):
    """Run Muon's quintic towards the nearest semi-orthogonal matrix.

    X ← a X + (b G + c G²) X with G = X Xᵀ, or the same from the other side where that is smaller.
    """
    x = matrix / (entry_norm(matrix, 2.0) + 1e-7)
    for _ in range(STEPS):
        x = _schulz(x, PRECISION)
    return x


@triton.jit
def outer(x, y):
    """Compute x yᵀ."""
    return x[:, None] * y[None, :]


@triton.jit
def sustained(state, factor, new):
    """Compute factor·M + new."""
    return factor * state + new


@triton.jit
def norms_of(memory, AXIS: tl.constexpr):
    """Compute the norms of the rows (axis ``v``) or columns (``k``)."""
    most = _largest_along(memory, AXIS)
    plain = memory / most
    if AXIS == "v":
        return tl.sqrt(tl.sum(plain * plain, 0)) * tl.max(most, 0)
    else:
        return tl.sqrt(tl.sum(plain * plain, 1)) * tl.max(most, 1)


@triton.jit
def newton_schulz_vjp(d, matrix, PRECISION: tl.constexpr, STEPS: tl.constexpr):
    """Compute the gradient of ``newton_schulz``: the matrices before each step are made anew.

    Of a step Y = (a + b G + c G²) X with the gradient D it is (a + b G + c G²) D + (b N + c (N G +
    G N)) X, where N = D Xᵀ + X Dᵀ.
    """
    size = entry_norm(matrix, 2.0)
    wide: tl.constexpr = matrix.shape[0] > matrix.shape[1]
    for back in range(STEPS):
        x = matrix / (size + 1e-7)
        for _ in range(STEPS - 1 - back):
            x = _schulz(x, PRECISION)
        if wide:
            gram = dot(turned(x, PRECISION), x, PRECISION)
            mixed = dot(turned(x, PRECISION), d, PRECISION)
            once = dot(d, gram, PRECISION)
            d = 3.4445 * d - 4.7750 * once + 2.0315 * dot(once, gram, PRECISION)
            d += dot(x, _bent(mixed, gram, PRECISION), PRECISION)
        else:
            gram = dot(x, turned(x, PRECISION), PRECISION)
            mixed = dot(d, turned(x, PRECISION), PRECISION)
            once = dot(gram, d, PRECISION)
            d = 3.4445 * d - 4.7750 * once + 2.0315 * dot(gram, once, PRECISION)
            d += dot(_bent(mixed, gram, PRECISION), x, PRECISION)
    inner = _of_all(d * matrix)
    return d / (size + 1e-7) - matrix * inner / (size * (size + 1e-7) * (size + 1e-7))


@triton.jit
def _bent(mixed, gram, PRECISION: tl.constexpr):
    """Compute b N + c (N G + G N), N = M + Mᵀ: G and N are symmetric, so one product tells both."""
    both = mixed + tl.trans(mixed)
    once = dot(both, gram, PRECISION)
    return -4.7750 * both + 2.0315 * (once + tl.trans(once))


@triton.jit
def _schulz(x, PRECISION: tl.constexpr):
    if x.shape[0] > x.shape[1]:
        gram = dot(turned(x, PRECISION), x, PRECISION)
        return 3.4445 * x + dot(x, -4.7750 * gram + 2.0315 * dot(gram, gram, PRECISION), PRECISION)
    else:
        gram = dot(x, turned(x, PRECISION), PRECISION)
        return 3.4445 * x + dot(-4.7750 * gram + 2.0315 * dot(gram, gram, PRECISION), x, PRECISION)
