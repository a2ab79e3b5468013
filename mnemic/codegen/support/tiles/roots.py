"""What searches for roots share."""

import triton
import triton.language as tl

from .scalars import sigmoid


@triton.jit
def any_of(condition):
    """Whether a condition holds anywhere in a matrix, a vector or a number."""
    found = condition.to(tl.int32)
    if len(condition.shape) == 2:
        found = tl.max(found, 1)
    if len(condition.shape) > 0:
        found = tl.max(found, 0)
    return found > 0


@triton.jit
def there(x, rows, columns):
    """Which entries of a memory [rows, columns], held the other way round, are there."""
    row, column = tl.arange(0, x.shape[1])[None, :], tl.arange(0, x.shape[0])[:, None]
    return (row < rows) & (column < columns)


@triton.jit
def rounding(like):
    """How far a root may still move, as a share of it."""
    return 4.5e-16 if like.dtype == tl.float64 else 2.4e-7


@triton.jit
def near(like):
    """A residual from which Newton's step is one to the root: the square root of a rounding."""
    return 1.5e-8 if like.dtype == tl.float64 else 3.5e-4


@triton.jit
def bracket(zeta):
    """Where the search for the root of a falling sum begins: ζ, between which ends it is known to
    lie, and how far to go."""
    return zeta, zeta + float("-inf"), zeta + float("inf"), zeta + 1.0


@triton.jit
def nearer(left, slopes, scale, zeta, low, high, width, moving, count):
    """A step of the search for the root of a falling sum, from what is left of it at ζ.

    The bracket is as wide as all numbers until both ends of it are known: then every third step
    halves it, the others are Newton's, as far as they lie inside; before, they go no farther than
    a width that grows. A sum that is infinite or no number lies below the root.
    """
    left = tl.where(left - left == 0.0, left, 1e30)
    low = tl.where(left > 0, zeta, low)
    high = tl.where(left > 0, high, zeta)
    known = (low > float("-inf")) & (high < float("inf"))
    newton = zeta + left / slopes
    inside = (newton > low) & (newton < high) & (known | (tl.abs(newton - zeta) < width))
    inside = inside & (count % 3 != 2)
    outward = tl.where(left > 0, zeta + width, zeta - width)
    following = tl.where(inside, newton, tl.where(known, 0.5 * low + 0.5 * high, outward))
    width = tl.where(inside | known, width, 4.0 * width)
    far = moving & (tl.abs(left) > rounding(zeta) * tl.abs(scale))
    following = tl.where(far, following, zeta)
    moving = far & (tl.abs(following - zeta) > rounding(zeta) * tl.abs(following))
    return following, low, high, width, moving


@triton.jit
def stretched(unit, LOW: tl.constexpr, HIGH: tl.constexpr):
    """(−1, 1) onto the domain, fine near its ends and never on them."""
    gap = tl.maximum(1.0 - tl.abs(unit), 1e-16 if unit.dtype == tl.float64 else 1e-7)
    line = unit / gap
    if float("inf") == HIGH and float("-inf") == LOW:
        return line
    elif float("inf") == HIGH:
        most = 700.0 if unit.dtype == tl.float64 else 87.0
        return LOW + tl.exp(tl.minimum(tl.maximum(line, -most), most))
    else:
        edge = 36.0 if unit.dtype == tl.float64 else 15.9
        return LOW + (HIGH - LOW) * sigmoid(tl.minimum(tl.maximum(line, -edge), edge))


@triton.jit
def steep(s, error, slope):
    """∂e/∂ŷ at the root, 1e30 where it lies inside a jump of the error."""
    inside = tl.abs(error - s) > near(s) * (1.0 + tl.abs(s))
    return tl.where(inside, 1e30, slope)
