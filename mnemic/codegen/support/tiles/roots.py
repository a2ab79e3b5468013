"""What searches for roots share."""

import triton
import triton.language as tl

from .scalars import sigmoid


@triton.jit
def any_of(condition):
    """Whether a condition holds anywhere in a matrix."""
    return tl.max(tl.max(condition.to(tl.int32), 1), 0) > 0


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
