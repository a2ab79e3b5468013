"""What searches for roots share."""

import triton
import triton.language as tl

from .scalars import sigmoid


@triton.jit
def any_of(condition):
    """Return whether a condition holds anywhere in a matrix, a vector or a number."""
    found = condition.to(tl.int32)
    if len(condition.shape) == 2:
        found = tl.max(found, 1)
    if len(condition.shape) > 0:
        found = tl.max(found, 0)
    return found > 0


@triton.jit
def there(x, rows, columns):
    """Return which entries of a memory [rows, columns], held the other way round, are there."""
    row, column = tl.arange(0, x.shape[1])[None, :], tl.arange(0, x.shape[0])[:, None]
    return (row < rows) & (column < columns)


@triton.jit
def rounding(like):
    """Return how far a root may still move, as a share of it."""
    return 4.5e-16 if like.dtype == tl.float64 else 2.4e-7


@triton.jit
def near(like):
    """Return the residual from which one Newton step is enough: the square root of a rounding."""
    return 1.5e-8 if like.dtype == tl.float64 else 3.5e-4


@triton.jit
def bracket(zeros, START):
    """Begin the search for a positive root: return the first place, between which ends it is known
    to lie, what is left there, how far to go, and what was left before, which is nothing."""
    x = zeros + START
    return x, zeros, zeros + float("inf"), zeros - 1.0, zeros + 1.0, zeros + 1.0, zeros


@triton.jit
def nearer(found, scale, x, low, high, left_low, left_high, width, before, moving, count, END):
    """Take a step of the search for the x in (0, END) at which a sum is the scale: the zero of the
    logarithm of their quotient, which rises about as log x does.

    The bracket is all positive numbers until both ends of it are known. Then steps are secants in
    log x, in which an end that stays counts for less (Anderson and Björck, 1973), and after 12
    evaluations every third step halves it. What is found stays; what is found with more left than
    the square root of a rounding is no number.
    """
    most = 1e300 if x.dtype == tl.float64 else 8e37
    left = tl.log(tl.minimum(tl.maximum(found / scale, 1e-37), 8e37))
    left = tl.where(found >= 0, left, -86.0)
    again = left * before > 0.0
    quotient = tl.where(again, left / tl.where(again, before, 1.0), 0.0)
    less = tl.where(quotient < 1.0, tl.maximum(1.0 - quotient, 0.1), 0.5)
    low = tl.where(moving & (left < 0), x, low)
    left_low = tl.where(moving & (left < 0), left, left_low * less)
    high = tl.where(moving & (left > 0), x, high)
    left_high = tl.where(moving & (left > 0), left, left_high * less)
    known = (low > 0) & (high < float("inf"))
    narrow = known & (high - low <= rounding(x) * high)
    far = moving & (tl.abs(left) > rounding(x)) & (narrow == 0)
    length = tl.log(tl.where(known, high / tl.where(known, low, 1.0), 2.0))
    least = tl.minimum(rounding(x) / length, 0.5)
    share = tl.where((count >= 12) & (count % 3 == 2), 0.5, left_low / (left_low - left_high))
    share = tl.minimum(tl.maximum(share, least), 1.0 - least)
    inner = tl.where(known, low, 1.0) * tl.exp(share * length)
    outer = x * tl.exp(tl.minimum(tl.where(left > 0, -width, width), 80.0))
    outer = tl.minimum(tl.maximum(outer, 1e-37), tl.minimum(most, END * (1.0 - rounding(x))))
    lost = moving & (tl.abs(left) > near(x))
    following = tl.where(far, tl.where(known, inner, outer), tl.where(lost, float("nan"), x))
    width = tl.where(known, width, 4.0 * width)
    return following, low, high, left_low, left_high, width, left, far


@triton.jit
def stretched(unit, LOW: tl.constexpr, HIGH: tl.constexpr):
    """Map (−1, 1) onto the domain, fine near its ends and never on them."""
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
    """Return ∂e/∂ŷ at the root, 1e30 where it lies inside a jump of the error."""
    inside = tl.abs(error - s) > near(s) * (1.0 + tl.abs(s))
    return tl.where(inside, 1e30, slope)
