"""Second-order memories: Cholesky factors, solves, rank-one updates, conjugate gradients.

Matrices H and P are symmetric, [K, K]; a factor is lower triangular, [C, C].
"""

import triton
import triton.language as tl

from .blocks import order
from .decays import last
from .products import exact, full
from .triangles import lower, unit_lower_inverse


@triton.jit
def symmetric(x):
    """Compute (X + Xᵀ)/2."""
    return 0.5 * (x + tl.trans(x))


@triton.jit
def diagonal_of(x):
    """Return the diagonal: [C, C] → [C]."""
    t, s = order(x.shape[0])
    return tl.sum(tl.where(t == s, x, 0.0), 1)


@triton.jit
def innovation_factor(kp, k, PRECISION: tl.constexpr):
    """Factor I + K P Kᵀ by Cholesky, given K P and K: [C, K] twice → [C, C]."""
    t, s = order(k.shape[0])
    return cholesky(tl.where(t == s, 1.0, 0.0) + full(kp, tl.trans(k), PRECISION))


@triton.jit
def innovation_factor_kept(kp, k, kept, PRECISION: tl.constexpr):
    """Factor diag(β) + K P Kᵀ by Cholesky, given K P, K and β: [C, K] twice, [C] → [C, C]."""
    t, s = order(k.shape[0])
    return cholesky(tl.where(t == s, kept[:, None], 0.0) + full(kp, tl.trans(k), PRECISION))


@triton.jit
def cholesky(matrix):
    """Factor S into L Lᵀ, one column after another: [C, C] → [C, C]."""
    C: tl.constexpr = matrix.shape[0]
    row = tl.arange(0, C)
    s = row[None, :]
    left, factor = matrix, tl.zeros_like(matrix)
    for j in range(0, C):
        column = tl.sum(tl.where(s == j, left, 0.0), 1)
        pivot = tl.sum(tl.where(row == j, column, 0.0), 0)
        column = tl.where(row >= j, column / tl.sqrt(pivot), 0.0)
        factor = tl.where(s == j, column[:, None], factor)
        left -= column[:, None] * column[None, :]
    return factor


@triton.jit
def _parts(factor, PRECISION: tl.constexpr):
    """Split L = diag(L) (I + M) into (I + M)⁻¹ and diag(L)."""
    t, s = order(factor.shape[0])
    size = diagonal_of(factor)
    strict = tl.where(t > s, factor / size[:, None], 0.0)
    return unit_lower_inverse(strict, PRECISION), size


@triton.jit
def solved(factor, x, PRECISION: tl.constexpr):
    """Compute L⁻¹ x: [C, C], [C, K] → [C, K]."""
    inverse, size = _parts(factor, PRECISION)
    return exact(inverse, x / size[:, None], PRECISION)


@triton.jit
def solved_back(factor, x, PRECISION: tl.constexpr):
    """Compute L⁻ᵀ x: [C, C], [C, K] → [C, K]."""
    inverse, size = _parts(factor, PRECISION)
    return exact(tl.trans(inverse), x, PRECISION) / size[:, None]


@triton.jit
def cholesky_vjp(d, factor, PRECISION: tl.constexpr):
    """Turn L's gradient d into the symmetric one of S: L⁻ᵀ Φ(Lᵀ d) L⁻¹, Φ halving the diagonal."""
    t, s = order(d.shape[0])
    inner = lower(exact(tl.trans(factor), d, PRECISION))
    inner = tl.where(t == s, 0.5 * inner, inner)
    half = solved_back(factor, inner, PRECISION)
    return symmetric(solved_back(factor, tl.trans(half), PRECISION))


@triton.jit
def shrunk(p, x, live, PRECISION: tl.constexpr):
    """Compute P − XᵀX over the rows that are there, kept symmetric; the product in a body of its
    own (``products.dot_apart`` tells why)."""
    own = tl.where((tl.arange(0, x.shape[0]) < live)[:, None], x, 0.0)
    for _ in tl.range(0, tl.minimum(live, 1), num_stages=1):
        p -= exact(tl.trans(own), own, PRECISION)
    return symmetric(p)


@triton.jit
def shrunk_kept(p, x, kept, live, PRECISION: tl.constexpr):
    """Compute (P − XᵀX) / β, β at the last row that is there, kept symmetric."""
    return shrunk(p, x, live, PRECISION) / last(kept, live)


# -- one token -------------------------------------------------------------------------------


@triton.jit
def _times(p, x):
    """Compute P x of a symmetric P."""
    return tl.sum(p * x[:, None], 0)


@triton.jit
def kalman_gain(p, k, weighed):
    """Compute P wk / (1 + kᵀ P wk), wk the weighed key."""
    pk = _times(p, weighed)
    return pk / (1.0 + tl.sum(k * pk, 0))


@triton.jit
def kalman_gain_kept(p, k, weighed, log_forget):
    """Compute P wk / (γ + kᵀ P wk), wk the weighed key and γ given by its logarithm."""
    pk = _times(p, weighed)
    return pk / (tl.exp(log_forget) + tl.sum(k * pk, 0))


@triton.jit
def downdated(p, k, gain):
    """Compute P − g (P k)ᵀ, kept symmetric."""
    pk = _times(p, k)
    return p - 0.5 * (gain[:, None] * pk[None, :] + pk[:, None] * gain[None, :])


@triton.jit
def downdated_kept(p, k, gain, log_forget):
    """Compute (P − g (P k)ᵀ) / γ, kept symmetric, γ given by its logarithm."""
    return downdated(p, k, gain) * tl.exp(-log_forget)


@triton.jit
def ridge_solved(h, ridge, q):
    """Compute (H + Diag(ridge))⁻¹ q, by elimination of one column after another; no pivots, as the
    matrix is positive definite: [K, K], [K], [K] → [K]."""
    K: tl.constexpr = h.shape[0]
    i, j = order(K)
    at = tl.arange(0, K)
    left, x = h + tl.where(i == j, ridge[None, :], 0.0), q
    for n in range(0, K):
        row = tl.sum(tl.where(i == n, left, 0.0), 0)
        pivot = tl.sum(tl.where(at == n, row, 0.0), 0)
        pivot = tl.where(pivot == 0.0, 1.0, pivot)  # a channel that is not there
        own = tl.sum(tl.where(at == n, x, 0.0), 0)
        column = tl.sum(tl.where(j == n, left, 0.0), 1)
        column = tl.where(at == n, 0.0, column / pivot)
        left -= column[:, None] * row[None, :]
        x -= column * own
    size = tl.sum(tl.where(i == j, left, 0.0), 0)
    return x / tl.where(size == 0.0, 1.0, size)


# -- conjugate gradients ---------------------------------------------------------------------


@triton.jit
def _system(x, key, weights, h, ridge, reach, PRECISION: tl.constexpr):
    """Compute (H_t + Λ_t) x_t for every row; a wide H leaves few registers for operands."""
    LONGEST: tl.constexpr = 16 if h.shape[0] > 64 else 64
    seen = weights * full(x, tl.trans(key), PRECISION, LONGEST)
    held = reach[:, None] * full(x, h, PRECISION, LONGEST)
    return held + full(seen, key, PRECISION) + ridge * x


@triton.jit
def _pivots(diagonal):
    """Put one where a diagonal is zero, as in channels that are not there."""
    return tl.where(diagonal > 0, diagonal, 1.0)


@triton.jit
def begun(target, diagonal, TOLERANCE: tl.constexpr, PRECISION: tl.constexpr):
    """Begin conjugate gradients: return x, what is left of the target, the direction, its power,
    which rows go on, and below what size of the rest they are done."""
    short: tl.constexpr = PRECISION == "bf16" or PRECISION == "tf32"  # noqa: PLR1714  # as above
    real: tl.constexpr = 1e-4 if short else 9.6e-7
    rounding: tl.constexpr = 1.8e-15 if target.dtype == tl.float64 else real
    goal = tl.sqrt(tl.sum(target * target, 1)) * max(TOLERANCE, rounding)
    along = target / _pivots(diagonal)
    live = tl.sqrt(tl.sum(target * target, 1)) > goal
    return tl.zeros_like(target), target, along, tl.sum(target * along, 1), live, goal


@triton.jit
def stepped(x, rest, along, power, live, goal, image, diagonal):
    """Take a step of conjugate gradients, ``image``: the system times ``along``; done rows stay."""
    curvature = tl.sum(along * image, 1)
    step = tl.where(live, power / tl.where(curvature == 0, 1.0, curvature), 0.0)[:, None]
    x += step * along
    rest -= step * image
    scaled = rest / _pivots(diagonal)
    following = tl.sum(rest * scaled, 1)
    turn = tl.where(live, following / tl.where(power == 0, 1.0, power), 0.0)
    along = scaled + turn[:, None] * along
    power = tl.where(live, following, power)
    return x, rest, along, power, tl.sqrt(tl.sum(rest * rest, 1)) > goal


@triton.jit
def conjugated(
    q, key, weights, h, ridge, reach, PRECISION: tl.constexpr,
    TOLERANCE: tl.constexpr, ITERATIONS: tl.constexpr,
):  # fmt: skip
    """Solve (H_t + Λ_t) x_t = q_t for every row by conjugate gradients: see ``ops.conjugated``."""
    diagonal = _rows_of_diagonal(h, reach, PRECISION) + full(weights, key * key, PRECISION) + ridge
    x, rest, along, power, live, goal = begun(q, diagonal, TOLERANCE, "tf32x3")
    count = 0
    while (count < ITERATIONS) & (tl.max(live.to(tl.int32), 0) > 0):
        if count < ITERATIONS:  # again: out of a condition Triton moves no operands
            image = _system(along, key, weights, h, ridge, reach, PRECISION)
            x, rest, along, power, live = stepped(
                x, rest, along, power, live, goal, image, diagonal
            )
        count += 1
    return x


@triton.jit
def _rows_of_diagonal(h, reach, PRECISION: tl.constexpr):
    """Compute reach_t H_κκ: [K, K], [C] → [C, K]. As a product it lies as rows do; broadcast, it
    would lie as H does, with copies in several warps, and all rows beside it."""
    t, s = order(reach.shape[0])
    own = tl.sum(tl.where(_same(h), h, 0.0), 0)
    first = tl.where(t == 0, own[None, :], 0.0)
    return full(tl.where(s == 0, reach[:, None], 0.0), first, PRECISION)


@triton.jit
def _same(h):
    i, j = order(h.shape[0])
    return i == j
