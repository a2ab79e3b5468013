"""What the kernels written by hand share: products, rows, memories, triangular inverses."""

import triton
import triton.language as tl


@triton.jit
def product(left, right, TYPE: tl.constexpr, REAL: tl.constexpr):
    """L R: operands of the arguments' type, sums in REAL (float32, or float64)."""
    return tl.dot(left.to(TYPE), right.to(TYPE), out_dtype=REAL, input_precision="tf32x3")


@triton.jit
def fine(left, right, SHORT: tl.constexpr, REAL: tl.constexpr):
    """L R inside an inverse, whose operands are not rounded to 16 bits."""
    if tl.float64 == REAL:
        return tl.dot(left, right, out_dtype=tl.float64)
    else:
        return tl.dot(left, right, input_precision="tf32" if SHORT else "tf32x3")


@triton.jit
def rows(pointer, first, stride, t, live, channel, WIDTH: tl.constexpr):
    """[C, W] of rows of WIDTH entries, ``stride`` rows apart; zero from ``live`` on."""
    place = (t * (stride * WIDTH))[:, None] + channel[None, :]
    return tl.load(pointer + first * WIDTH + place, mask=(t < live)[:, None], other=0.0)


@triton.jit
def put_rows(pointer, first, stride, t, live, channel, WIDTH: tl.constexpr, value):
    """Store rows, those before ``live``."""
    place = (t * (stride * WIDTH))[:, None] + channel[None, :]
    there = (t < live)[:, None]
    tl.store(pointer + first * WIDTH + place, value.to(pointer.dtype.element_ty), mask=there)


@triton.jit
def numbers(pointer, first, stride, t, live, REAL: tl.constexpr):
    """[C] of numbers, zero from ``live`` on."""
    return tl.load(pointer + first + t * stride, mask=t < live, other=0.0).to(REAL)


@triton.jit
def put_numbers(pointer, first, stride, t, live, value):
    """Store numbers, those before ``live``."""
    tl.store(pointer + first + t * stride, value, mask=t < live)


@triton.jit
def places(at_K, at_V, V: tl.constexpr):
    """[K, V]: where the entries of a memory lie."""
    return at_K[:, None] * V + at_V[None, :]


@triton.jit
def joined(found, strict, t, s, HALF: tl.constexpr, SHORT: tl.constexpr, REAL: tl.constexpr):
    """T − T L T: neighbouring blocks of HALF rows, inverted apart, become one."""
    corner = (t // (2 * HALF) == s // (2 * HALF)) & (t // HALF > s // HALF)
    across = tl.where(corner, strict, 0.0)
    return found - fine(fine(found, across, SHORT, REAL), found, SHORT, REAL)


@triton.jit
def inverse(strict, SHORT: tl.constexpr, REAL: tl.constexpr):
    """(I + L)⁻¹ of a strictly lower triangular L, [C, C], C = 16, 32 or 64.

    Pairs of blocks that are inverted become one: within blocks of 16 from single entries on, all
    blocks side by side; then among whole rows.
    """
    C: tl.constexpr = strict.shape[0]
    N: tl.constexpr = C // 16
    at = tl.arange(0, N)
    same = at[:, None, None, None] == at[None, None, :, None]
    blocks = tl.sum(tl.where(same, tl.reshape(strict, (N, 16, N, 16)), 0.0), 2)
    t, s = tl.arange(0, 16)[None, :, None], tl.arange(0, 16)[None, None, :]
    found = tl.where(t == s, 1.0, 0.0) - tl.where(t // 2 == s // 2, blocks, 0.0)
    found = joined(found, blocks, t, s, 2, SHORT, REAL)
    found = joined(found, blocks, t, s, 4, SHORT, REAL)
    found = joined(found, blocks, t, s, 8, SHORT, REAL)
    whole = tl.reshape(tl.where(same, found[:, :, None, :], 0.0), (C, C))
    t, s = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    if C > 16:
        whole = joined(whole, strict, t, s, 16, SHORT, REAL)
    if C > 32:
        whole = joined(whole, strict, t, s, 32, SHORT, REAL)
    return whole
