"""Functions on tiles inside Triton kernels: the tile's twin of each function of ``ops``.

A tile holds one chunk: rows t and sources s of C rows (of which the first ``live`` are there),
channels padded to a power of two (``width`` of them are there, the rest is zero). Memories
[V, K] are held as [K, V], so that no accumulator needs to be transposed to be read.
``PRECISION`` tells what operands products take: "fp64", "ieee", "tf32", "tf32x3", "fp16", "bf16".
"""

import triton
import triton.language as tl

TINY = tl.constexpr(1e-30)
"""Below this a norm counts as zero."""

BASE = tl.constexpr(16)
"""Rows of a triangular block that is solved row by row."""


# -- products, loads, stores -----------------------------------------------------------------


@triton.jit
def dot(left, right, PRECISION: tl.constexpr):
    """L R with accumulation in float32 (float64 where the operands are)."""
    if PRECISION == "bf16":
        return tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16))
    elif PRECISION == "fp16":
        return tl.dot(left.to(tl.float16), right.to(tl.float16))
    elif PRECISION == "fp64":
        return tl.dot(left, right, out_dtype=tl.float64)
    else:
        return tl.dot(left, right, input_precision=PRECISION)


@triton.jit
def exact(left, right, PRECISION: tl.constexpr):
    """The same inside triangular systems, where operands are not rounded to 16 bits."""
    if PRECISION == "fp64":
        return tl.dot(left, right, out_dtype=tl.float64)
    elif PRECISION == "bf16" or PRECISION == "fp16":
        return tl.dot(left, right, input_precision="tf32")
    else:
        return tl.dot(left, right, input_precision=PRECISION)


@triton.jit
def load_rows(pointer, origin, stride, t, live, channel, width, REAL: tl.constexpr):
    """[C, BW]: rows of channels, zero beyond those that are there."""
    place = (origin + t * stride)[:, None] * width + channel[None, :]
    there = (t < live)[:, None] & (channel < width)[None, :]
    return tl.load(pointer + place, mask=there, other=0.0).to(REAL)


@triton.jit
def load_column(pointer, origin, stride, t, live, REAL: tl.constexpr):
    """[C]: a number a row; beyond the rows that are there the last one, which nothing reads."""
    return tl.load(pointer + origin + tl.minimum(t, live - 1) * stride).to(REAL)


@triton.jit
def load_logs(pointer, origin, stride, t, live, REAL: tl.constexpr):
    """[C]: logarithms, zero beyond the rows that are there."""
    return tl.load(pointer + origin + t * stride, mask=t < live, other=0.0).to(REAL)


@triton.jit
def store_rows(pointer, origin, stride, t, live, channel, width, value):
    """Rows of channels that are there."""
    place = (origin + t * stride)[:, None] * width + channel[None, :]
    there = (t < live)[:, None] & (channel < width)[None, :]
    tl.store(pointer + place, value, mask=there)


@triton.jit
def store_column(pointer, origin, stride, t, live, value):
    """A number a row."""
    tl.store(pointer + origin + t * stride, value, mask=t < live)


@triton.jit
def load_matrix(pointer, number, row, rows, column, columns, REAL: tl.constexpr):
    """[columns, rows] of the matrix [rows, columns] with this number."""
    place = number * rows * columns + row[None, :] * columns + column[:, None]
    there = (row < rows)[None, :] & (column < columns)[:, None]
    return tl.load(pointer + place, mask=there, other=0.0).to(REAL)


@triton.jit
def store_matrix(pointer, number, row, rows, column, columns, value):
    """The matrix [rows, columns] with this number, from [columns, rows]."""
    place = number * rows * columns + row[None, :] * columns + column[:, None]
    there = (row < rows)[None, :] & (column < columns)[:, None]
    tl.store(pointer + place, value, mask=there)


@triton.jit
def load_vector(pointer, number, row, rows, REAL: tl.constexpr):
    """The vector [rows] with this number."""
    return tl.load(pointer + number * rows + row, mask=row < rows, other=0.0).to(REAL)


@triton.jit
def store_vector(pointer, number, row, rows, value):
    """The vector [rows] with this number."""
    tl.store(pointer + number * rows + row, value, mask=row < rows)


@triton.jit
def load_number(pointer, number, REAL: tl.constexpr):
    """One number of each memory."""
    return tl.load(pointer + number).to(REAL)


@triton.jit
def store_number(pointer, number, value):
    """One number of each memory."""
    tl.store(pointer + number, value)


# -- scalar functions ------------------------------------------------------------------------


@triton.jit
def sign(x):
    """−1, 0 or 1."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))


@triton.jit
def square(x):
    """x²."""
    return x * x


@triton.jit
def cube(x):
    """x³."""
    return x * x * x


@triton.jit
def fourth(x):
    """x⁴."""
    return x * x * (x * x)


@triton.jit
def power(x, p):
    """x^p of x ≥ 0."""
    return tl.exp(p * tl.log(x))


@triton.jit
def log1p(x):
    """log(1 + x) to full precision at small x (Kahan's quotient)."""
    whole = 1.0 + x
    gap = whole - 1.0
    return tl.where(gap == 0.0, x, tl.log(whole) * (x / tl.where(gap == 0.0, 1.0, gap)))


@triton.jit
def softplus(x):
    """log(1 + exp x) without overflow."""
    return tl.maximum(x, 0.0) + log1p(tl.exp(-tl.abs(x)))


@triton.jit
def logsigmoid(x):
    """log σ(x)."""
    return -softplus(-x)


@triton.jit
def sigmoid(x):
    """1/(1 + exp(−x)) without overflow."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def tanh(x):
    """tanh by exp(−2|x|); a series near zero, where the quotient cancels."""
    small = tl.exp(-2.0 * tl.abs(x))
    far = sign(x) * (1.0 - small) / (1.0 + small)
    y = x * x
    near = x * (1.0 - y * (1.0 / 3.0 - y * (2.0 / 15.0 - y * (17.0 / 315.0 - y * (62.0 / 2835.0)))))
    return tl.where(tl.abs(x) < 0.02, near, far)


@triton.jit
def sinh(x):
    """(exp x − exp(−x))/2; a series near zero."""
    y = x * x
    near = x * (1.0 + y / 6.0 * (1.0 + y / 20.0 * (1.0 + y / 42.0)))
    return tl.where(tl.abs(x) < 0.02, near, 0.5 * (tl.exp(x) - tl.exp(-x)))


@triton.jit
def cosh(x):
    """(exp x + exp(−x))/2."""
    return 0.5 * (tl.exp(x) + tl.exp(-x))


@triton.jit
def asinh(x):
    """log(|x| + √(x² + 1)), with the sign of x."""
    size = tl.abs(x)
    return sign(x) * log1p(size + size * size / (1.0 + tl.sqrt(size * size + 1.0)))


@triton.jit
def atan(x):
    """arctan by four halvings of the angle and a series."""
    y = x
    for _ in tl.static_range(4):
        y = y / (1.0 + tl.sqrt(1.0 + y * y))
    z = y * y
    series = 1.0 / 13.0 - z * (1.0 / 15.0 - z / 17.0)
    series = 1.0 / 7.0 - z * (1.0 / 9.0 - z * (1.0 / 11.0 - z * series))
    series = y * (1.0 - z * (1.0 / 3.0 - z * (1.0 / 5.0 - z * series)))
    return 16.0 * series


@triton.jit
def tan(x):
    """sin x / cos x."""
    return tl.sin(x) / tl.cos(x)


@triton.jit
def normal_cdf(x):
    """Φ(x)."""
    return 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)


@triton.jit
def gelu(x):
    """x Φ(x)."""
    return x * normal_cdf(x)


@triton.jit
def rounded(x):
    """The nearest integer, halves to even."""
    low = tl.floor(x)
    gap = x - low
    odd = low - 2.0 * tl.floor(0.5 * low)
    return low + tl.where(gap > 0.5, 1.0, tl.where(gap == 0.5, odd, 0.0))


# -- decays ----------------------------------------------------------------------------------


@triton.jit
def _order(C: tl.constexpr):
    t = tl.arange(0, C)
    return t[:, None], t[None, :]


@triton.jit
def segments(log_decay):
    """[C] → [C, C]: Π of decays over s < i ≤ t, zero for s > t; summed segment by segment."""
    C: tl.constexpr = log_decay.shape[0]
    t, s = _order(C)
    steps = tl.where(t > s, log_decay[:, None], 0.0)
    return tl.where(t >= s, tl.exp(tl.cumsum(steps, 0)), 0.0)


@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def products(factor):
    """[C] → [C, C]: Π of factors over s < i ≤ t, zero for s > t; zeros are allowed."""
    C: tl.constexpr = factor.shape[0]
    t, s = _order(C)
    steps = tl.where(t > s, factor[:, None], 1.0)
    return tl.where(t >= s, tl.associative_scan(steps, 0, _times), 0.0)


@triton.jit
def running_product(x):
    """[C]: products from the chunk's start."""
    return tl.associative_scan(x, 0, _times)


@triton.jit
def reach(log_decay):
    """[C]: decay from the chunk's start to each row."""
    return tl.exp(tl.cumsum(log_decay, 0))


@triton.jit
def reach_rows(log_decay):
    """[C, K]: decay from the chunk's start to each row, by channel."""
    return tl.exp(tl.cumsum(log_decay, 0))


@triton.jit
def remain_rows(log_decay):
    """[C, K]: decay from each row to the chunk's end, by channel."""
    return tl.exp(tl.cumsum(log_decay, 0, reverse=True) - log_decay)


@triton.jit
def remain(log_decay):
    """[C]: decay from each row to the chunk's end."""
    return tl.exp(tl.cumsum(log_decay, 0, reverse=True) - log_decay)


@triton.jit
def delayed(x, FILL: tl.constexpr):
    """[C]: the value of the row before, ``FILL`` for the first."""
    C: tl.constexpr = x.shape[0]
    t, s = _order(C)
    before = tl.sum(tl.where(t == s + 1, x[None, :], 0.0), 1)
    return tl.where(tl.arange(0, C) == 0, FILL, before)


@triton.jit
def delayed_rows(x, PRECISION: tl.constexpr, FILL: tl.constexpr):
    """[C, K]: the row before, ``FILL`` for the first."""
    C: tl.constexpr = x.shape[0]
    t, s = _order(C)
    shift = tl.where(t == s + 1, 1.0, 0.0).to(x.dtype)
    return tl.where(t == 0, FILL, exact(shift, x, PRECISION))


@triton.jit
def last(x, live):
    """The last row that is there."""
    return tl.sum(tl.where(tl.arange(0, x.shape[0]) == live - 1, x, 0.0), 0)


@triton.jit
def last_row(x, live):
    """[K]: the last row that is there."""
    return tl.sum(tl.where((tl.arange(0, x.shape[0]) == live - 1)[:, None], x, 0.0), 0)


# -- triangles -------------------------------------------------------------------------------


@triton.jit
def lower(x):
    """The lower triangle with its diagonal."""
    t, s = _order(x.shape[0])
    return tl.where(t >= s, x, 0.0)


@triton.jit
def strictly_lower(x, ROWS: tl.constexpr):
    """Zero on and above the diagonal of blocks of ``ROWS``."""
    t, s = _order(x.shape[0])
    return tl.where(t // ROWS > s // ROWS, x, 0.0)


@triton.jit
def lower_ones(like):
    """[C] → [C, C] lower triangle of ones."""
    t, s = _order(like.shape[0])
    return tl.where(t >= s, 1.0, 0.0).to(like.dtype)


@triton.jit
def lower_ones_of(like):
    """[C, K] → [C, C] lower triangle of ones."""
    t, s = _order(like.shape[0])
    return tl.where(t >= s, 1.0, 0.0).to(like.dtype)


@triton.jit
def unit_lower_inverse(strict, PRECISION: tl.constexpr):
    """(I + L)⁻¹ of a strictly lower triangular L: rows inside blocks of 16, then block merges.

    A merge of blocks D with what stands left of them is D⁻¹ − D⁻¹ L D⁻¹.
    """
    C: tl.constexpr = strict.shape[0]
    t, s = _order(C)
    B: tl.constexpr = min(BASE, C)
    out = _unit_lower_blocks(strict, B)
    size: tl.constexpr = B
    if C >= 2 * size:
        out = _merged(out, strict, 2 * size, size, PRECISION)
    if C >= 4 * size:
        out = _merged(out, strict, 4 * size, 2 * size, PRECISION)
    if C >= 8 * size:
        out = _merged(out, strict, 8 * size, 4 * size, PRECISION)
    return out


@triton.jit
def _merged(inverse, strict, WHOLE: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr):
    t, s = _order(strict.shape[0])
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


# -- scores under a decay by channel ---------------------------------------------------------


@triton.jit
def scores_after(q, k, log_decay, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """Σ_κ q_tκ k_sκ Π_{s<i≤t} decay_iκ for s ≤ t: [C, K] each → [C, C].

    Between blocks of 16 rows by products at the later block's start, inside them source by source;
    no exponent is ever positive, and none is a difference of sums over more than a block.
    """
    tl.static_assert(ROWS == 1)
    return _between(q, k, log_decay, 0, PRECISION) + _within(q, k, log_decay, 0)


@triton.jit
def scores_before(q, k, log_decay, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """Σ_κ q_tκ k_sκ Π_{s<i<t} decay_iκ for s < t."""
    tl.static_assert(ROWS == 1)
    return _between(q, k, log_decay, 1, PRECISION) + _within(q, k, log_decay, 1)


@triton.jit
def _between(q, k, log_decay, AHEAD: tl.constexpr, PRECISION: tl.constexpr):
    """Scores of rows against sources of earlier blocks."""
    C: tl.constexpr = q.shape[0]
    B: tl.constexpr = min(BASE, C)
    t = tl.arange(0, C)[:, None]
    scores = tl.zeros((C, C), q.dtype)
    for block in range(1, C // B):
        inside, early = t // B == block, t < block * B
        own = tl.where(inside, log_decay, 0.0)
        since = tl.cumsum(own, 0) - AHEAD * own
        past = tl.where(early, log_decay, 0.0)
        until = tl.cumsum(past, 0, reverse=True) - past
        left = tl.where(inside, q * tl.exp(since), 0.0)
        right = tl.where(early, k * tl.exp(until), 0.0)
        scores += dot(left, tl.trans(right), PRECISION)
    return scores


@triton.jit
def _within(q, k, log_decay, AHEAD: tl.constexpr):
    """Scores of rows against sources of their own block of 16, from its last source on."""
    C: tl.constexpr = q.shape[0]
    K: tl.constexpr = q.shape[1]
    B: tl.constexpr = min(BASE, C)
    N: tl.constexpr = C // B
    row = tl.arange(0, B)[None, :, None]
    column = tl.arange(0, B)[None, None, :]
    q3, k3 = tl.reshape(q, (N, B, K)), tl.reshape(k, (N, B, K))
    log3 = tl.reshape(log_decay, (N, B, K))
    exponent = tl.zeros((N, B, K), q.dtype)
    after = tl.zeros((N, K), q.dtype)
    found = tl.zeros((N, B, B), q.dtype)
    for back in range(0, B):
        j = B - 1 - back
        exponent += tl.where(row > j + AHEAD, after[:, None, :], 0.0)
        key = tl.sum(tl.where(row == j, k3, 0.0), 1)
        there = row >= j + AHEAD
        weighed = tl.where(there, q3 * key[:, None, :] * tl.exp(exponent), 0.0)
        found = tl.where(column == j, tl.sum(weighed, 2)[:, :, None], found)
        after = tl.sum(tl.where(row == j, log3, 0.0), 1)
    block = tl.arange(0, N)
    same = block[:, None, None, None] == block[None, None, :, None]
    return tl.reshape(tl.where(same, found[:, :, None, :], 0.0), (C, C))


# -- sums and reads --------------------------------------------------------------------------


@triton.jit
def matrix_rows(matrix, x):
    """M x: [C, S], [S] → [C]."""
    return tl.sum(matrix * x[None, :], 1)


@triton.jit
def vector_matrix(x, matrix):
    """xᵀ M: [C], [C, S] → [S]."""
    return tl.sum(matrix * x[:, None], 0)


@triton.jit
def recall(memory, x):
    """M x: [V, K], [K] → [V]."""
    return tl.sum(memory * x[:, None], 0)


@triton.jit
def pull(memory, x):
    """Mᵀ x: [V, K], [V] → [K]."""
    return tl.sum(memory * x[None, :], 1)


@triton.jit
def recall_row(vector, x):
    """n·x for every row: [K], [C, K] → [C]."""
    return tl.sum(x * vector[None, :], 1)


@triton.jit
def weigh(weights):
    """Σ_s weights_ts: [C, S] → [C]."""
    return tl.sum(weights, 1)


@triton.jit
def weigh_rated(weights, rate):
    """Σ_s weights_ts rate_s: [C, S], [S] → [C]."""
    return tl.sum(weights * rate[None, :], 1)


@triton.jit
def total(x):
    """Σ over channels."""
    return tl.sum(x, len(x.shape) - 1)


@triton.jit
def total_rows(x, live):
    """Σ over the rows that are there: [C, K] → [K]."""
    return tl.sum(tl.where((tl.arange(0, x.shape[0]) < live)[:, None], x, 0.0), 0)


@triton.jit
def total_of_matrix(x):
    """Σ over columns of a memory: [V, K] → [V]."""
    return tl.sum(x, 0)


@triton.jit
def total_rows_of_matrix(x):
    """Σ over rows of a memory: [V, K] → [K]."""
    return tl.sum(x, 1)


@triton.jit
def squared_norm(x):
    """κ = ‖x‖², at least ``TINY``."""
    return tl.maximum(tl.sum(x * x, len(x.shape) - 1), TINY)


@triton.jit
def positive(x):
    """x, at least ``TINY``."""
    return tl.maximum(x, TINY)


@triton.jit
def log_of(x):
    """log x of a decay that is zero or more."""
    return tl.log(tl.maximum(x, TINY))


@triton.jit
def distance(y, v):
    """n = ‖ŷ − v‖ over the value channels, 1 at an exact hit."""
    size = tl.sqrt(tl.sum((y - v) * (y - v), len(y.shape) - 1))
    return tl.where(size > TINY, size, 1.0)


@triton.jit
def layer_norm(z, width):
    """LayerNorm without affine over the channels that are there, ε = 1e-5."""
    unit, _ = _standardised(z, width)
    return unit


@triton.jit
def _standardised(z, width):
    axis: tl.constexpr = len(z.shape) - 1
    there = _channels(z) < width
    centred = tl.where(there, z - tl.sum(z, axis, keep_dims=True) / width, 0.0)
    variance = tl.sum(centred * centred, axis, keep_dims=True) / width
    scale = 1.0 / tl.sqrt(variance + 1e-5)
    return centred * scale, scale


@triton.jit
def _channels(z):
    if len(z.shape) == 2:
        return tl.arange(0, z.shape[1])[None, :]
    else:
        return tl.arange(0, z.shape[0])


@triton.jit
def layer_norm_vjp(grad, z, width):
    """The gradient of LayerNorm: (g − mean g − ẑ mean(g ẑ)) / σ."""
    axis: tl.constexpr = len(z.shape) - 1
    unit, scale = _standardised(z, width)
    mean = tl.sum(grad, axis, keep_dims=True) / width
    along = tl.sum(grad * unit, axis, keep_dims=True) / width
    inner = tl.where(_channels(z) < width, grad - mean - unit * along, 0.0)
    return inner * scale


@triton.jit
def closes(position, done, EVERY: tl.constexpr, STEPS: tl.constexpr):
    """Whether an interval of the document ends with these rows."""
    return (done % STEPS == 0) & ((position + done // STEPS) % EVERY == 0)


@triton.jit
def as_vector(x, like):
    """A number a row as a vector a row (or one number as one vector)."""
    if len(like.shape) == 2:
        return tl.zeros_like(like) + tl.expand_dims(x, 1)
    else:
        return tl.zeros_like(like) + x


@triton.jit
def constant(like, VALUE: tl.constexpr):
    """A number."""
    return tl.sum(tl.sum(tl.zeros_like(like), 0), 0) + VALUE


@triton.jit
def filled(like, VALUE: tl.constexpr):
    """A constant in the shape of ``like``."""
    return tl.zeros_like(like) + VALUE


@triton.jit
def replaced_last(y, end, live):
    """[C, V] with its last row that is there replaced."""
    at_end = tl.arange(0, y.shape[0]) == live - 1
    return tl.where(at_end[:, None], end[None, :], y)


# -- whole matrices --------------------------------------------------------------------------


@triton.jit
def _of_all(x):
    return tl.sum(tl.sum(x, 1), 0)


@triton.jit
def entry_norm(x, POWER: tl.constexpr):
    """‖A‖_p over the entries, at least ``TINY``."""
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
def simplex(exponent, scale, rows, columns, OVER: tl.constexpr):
    """scale · softmax(exponent) over the matrix [rows, columns], its rows or its columns."""
    there = tl.arange(0, exponent.shape[0])[:, None] < columns
    there = there & (tl.arange(0, exponent.shape[1])[None, :] < rows)
    z = tl.where(there, exponent, float("-inf"))
    if OVER == "rows":
        largest = tl.max(z, 0, keep_dims=True)
    elif OVER == "columns":
        largest = tl.max(z, 1, keep_dims=True)
    else:
        largest = tl.max(tl.max(z, 1, keep_dims=True), 0, keep_dims=True)
    weights = tl.where(there, tl.exp(exponent - tl.where(largest == largest, largest, 0.0)), 0.0)
    if OVER == "rows":
        whole = tl.sum(weights, 0, keep_dims=True)
    elif OVER == "columns":
        whole = tl.sum(weights, 1, keep_dims=True)
    else:
        whole = tl.sum(tl.sum(weights, 1, keep_dims=True), 0, keep_dims=True)
    return scale * weights / tl.where(whole > 0, whole, 1.0)


@triton.jit
def ball(x, radius):
    """The projection on ‖W‖_F ≤ radius."""
    return x * tl.minimum(radius / entry_norm(x, 2.0), 1.0)


@triton.jit
def scaled_to_norms(memory, norms, AXIS: tl.constexpr):
    """Rows (axis ``v``) or columns (``k``) scaled to given norms; zero ones stay zero."""
    if AXIS == "v":
        size = tl.sqrt(tl.sum(memory * memory, 0, keep_dims=True))
        wanted = norms[None, :]
    else:
        size = tl.sqrt(tl.sum(memory * memory, 1, keep_dims=True))
        wanted = norms[:, None]
    return memory * (wanted / tl.where(size > TINY, size, 1.0))


@triton.jit
def newton_schulz(matrix, PRECISION: tl.constexpr, STEPS: tl.constexpr):
    """Muon's quintic towards the nearest semi-orthogonal matrix.

    X ← a X + (b G + c G²) X with G = X Xᵀ, or the same from the other side where that is smaller.
    """
    x = matrix / (entry_norm(matrix, 2.0) + 1e-7)
    for _ in range(STEPS):
        x = _schulz(x, PRECISION)
    return x


@triton.jit
def outer(x, y):
    """x yᵀ."""
    return x[:, None] * y[None, :]


@triton.jit
def sustained(state, factor, new):
    """factor·M + new."""
    return factor * state + new


@triton.jit
def norms_of(memory, AXIS: tl.constexpr):
    """The norms of the rows (axis ``v``) or columns (``k``)."""
    if AXIS == "v":
        return tl.sqrt(tl.sum(memory * memory, 0))
    else:
        return tl.sqrt(tl.sum(memory * memory, 1))


# -- rows of blocks, for systems that are solved row by row ----------------------------------


@triton.jit
def rows_of(x, block, B: tl.constexpr):
    """[C, V] → [B, V]: the rows of one block."""
    N: tl.constexpr = x.shape[0] // B
    own = (tl.arange(0, N) == block)[:, None, None]
    return tl.sum(tl.where(own, tl.reshape(x, (N, B, x.shape[1])), 0.0), 0)


@triton.jit
def block_of(x, block, B: tl.constexpr):
    """[C, C] → [B, B]: a block of the diagonal."""
    N: tl.constexpr = x.shape[0] // B
    own = tl.arange(0, N) == block
    both = own[:, None, None, None] & own[None, None, :, None]
    return tl.sum(tl.sum(tl.where(both, tl.reshape(x, (N, B, N, B)), 0.0), 2), 0)


@triton.jit
def row_of(x, i):
    """[B, V] → [1, V]: one row."""
    own = (tl.arange(0, x.shape[0]) == i)[:, None]
    return tl.sum(tl.where(own, x, 0.0), 0, keep_dims=True)


@triton.jit
def column_of(x, i):
    """[B, B] → [B, 1]: one column."""
    own = (tl.arange(0, x.shape[1]) == i)[None, :]
    return tl.sum(tl.where(own, x, 0.0), 1, keep_dims=True)


@triton.jit
def with_row(x, row, i):
    """A row put in the place of another."""
    return tl.where((tl.arange(0, x.shape[0]) == i)[:, None], row, x)


@triton.jit
def with_rows(x, rows, block, B: tl.constexpr):
    """The rows of one block put in the place of others: [C, V], [B, V] → [C, V]."""
    N: tl.constexpr = x.shape[0] // B
    own = (tl.arange(0, N) == block)[:, None, None]
    put = tl.where(own, rows[None, :, :], tl.reshape(x, (N, B, x.shape[1])))
    return tl.reshape(put, (x.shape[0], x.shape[1]))


@triton.jit
def norm(x):
    """‖x‖ over the value channels; 1 where it is zero."""
    size = tl.sqrt(tl.sum(x * x, len(x.shape) - 1))
    return tl.where(size > TINY, size, 1.0)


@triton.jit
def norm_column(x):
    """The same as a column."""
    return tl.expand_dims(norm(x), len(x.shape) - 1)


# -- what gradients need ---------------------------------------------------------------------


@triton.jit
def at_last_row(x, like, live):
    """A vector as the last of the rows that are there, zero elsewhere: [K] → [C, K]."""
    return tl.where((tl.arange(0, like.shape[0]) == live - 1)[:, None], x[None, :], 0.0)


@triton.jit
def at_last(x, like, live):
    """A number as the last of the rows that are there, zero elsewhere: → [C]."""
    return tl.where(tl.arange(0, like.shape[0]) == live - 1, x, 0.0)


@triton.jit
def without_last(x, live):
    """Rows with zero for the last that is there."""
    return tl.where((tl.arange(0, x.shape[0]) == live - 1)[:, None], 0.0, x)


@triton.jit
def later_sums(x):
    """Σ_{t ≥ i} x_t: [C] → [C]."""
    return tl.cumsum(x, 0, reverse=True)


@triton.jit
def later_rows(x):
    """Σ_{t ≥ i} x_t: [C, K] → [C, K]."""
    return tl.cumsum(x, 0, reverse=True)


@triton.jit
def earlier_sums(x):
    """Σ_{s < i} x_s: [C] → [C]."""
    return tl.cumsum(x, 0) - x


@triton.jit
def earlier_rows(x):
    """Σ_{s < i} x_s: [C, K] → [C, K]."""
    return tl.cumsum(x, 0) - x


@triton.jit
def between(x):
    """Σ_{t ≥ i > s} x_ts: [C, C] → [C]."""
    t, s = _order(x.shape[0])
    later = tl.cumsum(tl.where(t > s, x, 0.0), 0, reverse=True)
    return tl.sum(tl.where(t > s, later, 0.0), 1)


@triton.jit
def as_rows(x, like):
    """The same vector for every row: [K] → [C, K]."""
    return tl.zeros_like(like) + x[None, :]


@triton.jit
def advanced(x):
    """The next row's value, zero for the last: [C] → [C]."""
    t, s = _order(x.shape[0])
    return tl.sum(tl.where(s == t + 1, x[None, :], 0.0), 1)


@triton.jit
def advanced_rows(x, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """The row so many further on, zero for the last: [C, K] → [C, K]."""
    t, s = _order(x.shape[0])
    shift = tl.where(s == t + ROWS, 1.0, 0.0).to(x.dtype)
    return exact(shift, x, PRECISION)


@triton.jit
def layer_norm_bend(d, grad, z, width):
    """∂(dᵀ J(z) g)/∂z for the Jacobian J of LayerNorm: see ``ops.layer_norm_bend``."""
    axis: tl.constexpr = len(z.shape) - 1
    unit, scale = _standardised(z, width)
    there = _channels(z) < width
    g = tl.where(there, grad - tl.sum(grad, axis, keep_dims=True) / width, 0.0)
    bar = tl.where(there, d - tl.sum(d, axis, keep_dims=True) / width, 0.0)
    a = tl.sum(g * unit, axis, keep_dims=True) / width
    b = tl.sum(bar * unit, axis, keep_dims=True) / width
    both = tl.sum(g * bar, axis, keep_dims=True) / width
    return -(unit * (both - 3.0 * a * b) + b * g + a * bar) * scale * scale


@triton.jit
def decayed_mix(scores, u, log_decay, PRECISION: tl.constexpr):
    """Σ_{s≤t} scores_ts u_sυ Π_{s<i≤t} decay_iυ: [C, C], [C, V] twice → [C, V]."""
    C: tl.constexpr = u.shape[0]
    B: tl.constexpr = min(BASE, C)
    t = tl.arange(0, C)[:, None]
    out = _mixed_within(scores, u, log_decay, 0)
    for block in range(1, C // B):
        inside, early = t // B == block, t < block * B
        since = tl.cumsum(tl.where(inside, log_decay, 0.0), 0)
        past = tl.where(early, log_decay, 0.0)
        until = tl.cumsum(past, 0, reverse=True) - past
        right = tl.where(early, u * tl.exp(until), 0.0)
        out += tl.where(inside, tl.exp(since) * dot(scores, right, PRECISION), 0.0)
    return out


@triton.jit
def mixed_back(scores, u, log_decay, PRECISION: tl.constexpr):
    """Σ_{t≥s} scores_ts u_tυ Π_{s<i≤t} decay_iυ: [C, C], [C, V] twice → [C, V]."""
    C: tl.constexpr = u.shape[0]
    B: tl.constexpr = min(BASE, C)
    t = tl.arange(0, C)[:, None]
    out = _mixed_within(scores, u, log_decay, 1)
    for block in range(1, C // B):
        inside, early = t // B == block, t < block * B
        since = tl.cumsum(tl.where(inside, log_decay, 0.0), 0)
        past = tl.where(early, log_decay, 0.0)
        until = tl.cumsum(past, 0, reverse=True) - past
        left = tl.where(inside, u * tl.exp(since), 0.0)
        out += tl.where(early, tl.exp(until) * dot(tl.trans(scores), left, PRECISION), 0.0)
    return out


@triton.jit
def _mixed_within(scores, u, log_decay, BACK: tl.constexpr):
    """The same inside blocks of 16, from the last source on."""
    C: tl.constexpr = u.shape[0]
    V: tl.constexpr = u.shape[1]
    B: tl.constexpr = min(BASE, C)
    N: tl.constexpr = C // B
    row = tl.arange(0, B)[None, :, None]
    column = tl.arange(0, B)[None, None, :]
    block = tl.arange(0, N)
    same = block[:, None, None, None] == block[None, None, :, None]
    own = tl.sum(tl.where(same, tl.reshape(scores, (N, B, N, B)), 0.0), 2)
    u3, log3 = tl.reshape(u, (N, B, V)), tl.reshape(log_decay, (N, B, V))
    exponent = tl.zeros((N, B, V), u.dtype)
    after = tl.zeros((N, V), u.dtype)
    out = tl.zeros((N, B, V), u.dtype)
    for back in range(0, B):
        j = B - 1 - back
        exponent += tl.where(row > j, after[:, None, :], 0.0)
        weights = tl.sum(tl.where(column == j, own, 0.0), 2)[:, :, None]
        factor = tl.where(row >= j, weights * tl.exp(exponent), 0.0)
        if BACK:
            sums = tl.sum(factor * u3, 1)
            out += tl.where(row == j, sums[:, None, :], 0.0)
        else:
            source = tl.sum(tl.where(row == j, u3, 0.0), 1)
            out += factor * source[:, None, :]
        after = tl.sum(tl.where(row == j, log3, 0.0), 1)
    return tl.reshape(out, (C, V))


@triton.jit
def newton_schulz_vjp(d, matrix, PRECISION: tl.constexpr, STEPS: tl.constexpr):
    """The gradient of ``newton_schulz``: the matrices before each step are made anew."""
    size = entry_norm(matrix, 2.0)
    first = matrix / (size + 1e-7)
    wide = matrix.shape[0] > matrix.shape[1]
    for back in range(STEPS):
        x = first
        for _ in range(STEPS - 1 - back):
            x = _schulz(x, PRECISION)
        if wide:
            gram = dot(tl.trans(x), x, PRECISION)
            d_mixed = dot(tl.trans(x), d, PRECISION)
        else:
            gram = dot(x, tl.trans(x), PRECISION)
            d_mixed = dot(d, tl.trans(x), PRECISION)
        mixed = -4.7750 * gram + 2.0315 * dot(gram, gram, PRECISION)
        d_gram = dot(d_mixed, gram, PRECISION) + dot(gram, d_mixed, PRECISION)
        d_gram = -4.7750 * d_mixed + 2.0315 * d_gram
        d_gram = d_gram + tl.trans(d_gram)
        if wide:
            d = 3.4445 * d + dot(d, mixed, PRECISION) + dot(x, d_gram, PRECISION)
        else:
            d = 3.4445 * d + dot(mixed, d, PRECISION) + dot(d_gram, x, PRECISION)
    inner = _of_all(d * matrix)
    return d / (size + 1e-7) - matrix * inner / (size * (size + 1e-7) * (size + 1e-7))


@triton.jit
def _schulz(x, PRECISION: tl.constexpr):
    if x.shape[0] > x.shape[1]:
        gram = dot(tl.trans(x), x, PRECISION)
        return 3.4445 * x + dot(x, -4.7750 * gram + 2.0315 * dot(gram, gram, PRECISION), PRECISION)
    else:
        gram = dot(x, tl.trans(x), PRECISION)
        return 3.4445 * x + dot(-4.7750 * gram + 2.0315 * dot(gram, gram, PRECISION), x, PRECISION)
