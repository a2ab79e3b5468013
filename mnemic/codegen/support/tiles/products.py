"""Matrix products with operands of a given precision."""

import triton
import triton.language as tl


@triton.jit
def dot(left, right, PRECISION: tl.constexpr):
    """Compute L R with accumulation in float32 (float64 where the operands are).

    Operands of calls in float16 are TF32, which has the same ten bits and the range of float32:
    what float16 holds may have products, and gradients, that it does not.
    """
    if PRECISION == "bf16":
        return tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16))
    elif PRECISION == "fp64":
        return tl.dot(left, right, out_dtype=tl.float64)
    else:
        return tl.dot(left, right, input_precision=PRECISION)


@triton.jit
def dot_apart(left, right, count, PRECISION: tl.constexpr):
    """Compute L R inside a loop of one iteration (none where ``count`` is 0): a body of its own,
    since Triton lays out the warps of all products of a body by the last of them."""
    real: tl.constexpr = tl.float64 if PRECISION == "fp64" else tl.float32
    found = tl.zeros((left.shape[0], right.shape[1]), real)
    for _ in tl.range(0, tl.minimum(count, 1), num_stages=1):
        found += dot(left, right, PRECISION)
    return found


@triton.jit
def turned(x, PRECISION: tl.constexpr):
    """Turn x into xᵀ for ``dot``: rounded first, so that what was loaded is read as it lies."""
    if PRECISION == "bf16":
        return tl.trans(x.to(tl.bfloat16))
    else:
        return tl.trans(x)


@triton.jit
def exact(left, right, PRECISION: tl.constexpr):
    """Compute L R as triangular systems need it: operands are not rounded to 16 bits."""
    if PRECISION == "fp64":
        return tl.dot(left, right, out_dtype=tl.float64)
    elif PRECISION == "bf16":
        return tl.dot(left, right, input_precision="tf32")
    else:
        return tl.dot(left, right, input_precision=PRECISION)


@triton.jit
def _halves(x):
    """Split columns in two: [R, 2 K] → the first K columns, and the others."""
    K: tl.constexpr = x.shape[1] // 2
    return tl.split(tl.permute(tl.reshape(x, (x.shape[0], 2, K)), (0, 2, 1)))


@triton.jit
def full(left, right, PRECISION: tl.constexpr, LONGEST: tl.constexpr = 64):
    """Compute L R to float32's own precision, for solves that iterate until nothing is left; of
    calls in 16 bits to that of pairs of bfloat16 numbers (2⁻¹⁶), which take half the registers.

    Sums longer than ``LONGEST`` are halved: every warp holds such operands whole.
    """
    if left.shape[1] > LONGEST and PRECISION != "fp64":
        a, b = _halves(left)
        c, d = _halves(tl.trans(right))
        one = full(a, tl.trans(c), PRECISION, LONGEST)
        return one + full(b, tl.trans(d), PRECISION, LONGEST)
    if PRECISION == "fp64":
        return tl.dot(left, right, out_dtype=tl.float64)
    elif PRECISION == "ieee":
        return tl.dot(left, right, input_precision="ieee")
    elif PRECISION == "bf16" or PRECISION == "tf32":  # noqa: PLR1714  # Triton knows no "in"
        return _paired(left, right)
    else:
        return tl.dot(left, right, input_precision="tf32x3")


@triton.jit
def _paired(left, right):
    """Compute L R of operands in pairs, x = high + low in bfloat16, without the product of lows."""
    left_high, right_high = left.to(tl.bfloat16), right.to(tl.bfloat16)
    left_low = (left - left_high.to(tl.float32)).to(tl.bfloat16)
    right_low = (right - right_high.to(tl.float32)).to(tl.bfloat16)
    found = tl.dot(left_low, right_high)
    found = tl.dot(left_high, right_low, acc=found)
    return tl.dot(left_high, right_high, acc=found)
