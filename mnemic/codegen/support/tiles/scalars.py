"""Functions of single numbers that Triton lacks, entry by entry."""

import triton
import triton.language as tl


@triton.jit
def sign(x):
    """Return −1, 0 or 1, as x is below, at or above zero."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))


@triton.jit
def square(x):
    """Compute x²."""
    return x * x


@triton.jit
def cube(x):
    """Compute x³."""
    return x * x * x


@triton.jit
def fourth(x):
    """Compute x⁴."""
    return x * x * (x * x)


@triton.jit
def power(x, p):
    """Compute x^p of x ≥ 0."""
    return tl.exp(p * tl.log(x))


@triton.jit
def log1p(x):
    """Compute log(1 + x) to full precision at small x (Kahan's quotient)."""
    whole = 1.0 + x
    gap = whole - 1.0
    return tl.where(gap == 0.0, x, tl.log(whole) * (x / tl.where(gap == 0.0, 1.0, gap)))


@triton.jit
def expm1(x):
    """Compute exp(x) − 1 to full precision at small x (Kahan's quotient)."""
    whole = tl.exp(x)
    near = tl.abs(x) < 0.5
    flat = (whole == 1.0) | (near == 0)
    short = (whole - 1.0) * (x / tl.where(flat, 1.0, tl.log(tl.where(near, whole, 1.0))))
    return tl.where(near, tl.where(whole == 1.0, x, short), whole - 1.0)


@triton.jit
def softplus(x):
    """Compute log(1 + exp x) without overflow."""
    return tl.maximum(x, 0.0) + log1p(tl.exp(-tl.abs(x)))


@triton.jit
def logsigmoid(x):
    """Compute log σ(x)."""
    return -softplus(-x)


@triton.jit
def sigmoid(x):
    """Compute 1/(1 + exp(−x)) without overflow."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def tanh(x):
    """Compute tanh x by exp(−2|x|); by a series near zero, where the quotient cancels."""
    small = tl.exp(-2.0 * tl.abs(x))
    far = sign(x) * (1.0 - small) / (1.0 + small)
    y = x * x
    near = x * (1.0 - y * (1.0 / 3.0 - y * (2.0 / 15.0 - y * (17.0 / 315.0 - y * (62.0 / 2835.0)))))
    return tl.where(tl.abs(x) < 0.02, near, far)


@triton.jit
def sinh(x):
    """Compute (exp x − exp(−x))/2; by a series near zero."""
    y = x * x
    near = x * (1.0 + y / 6.0 * (1.0 + y / 20.0 * (1.0 + y / 42.0)))
    return tl.where(tl.abs(x) < 0.02, near, 0.5 * (tl.exp(x) - tl.exp(-x)))


@triton.jit
def cosh(x):
    """Compute (exp x + exp(−x))/2."""
    return 0.5 * (tl.exp(x) + tl.exp(-x))


@triton.jit
def asinh(x):
    """Compute log(|x| + √(x² + 1)), with the sign of x."""
    size = tl.abs(x)
    return sign(x) * log1p(size + size * size / (1.0 + tl.sqrt(size * size + 1.0)))


@triton.jit
def atan(x):
    """Compute arctan x by four halvings of the angle and a series."""
    y = x
    for _ in tl.static_range(4):
        y = y / (1.0 + tl.sqrt(1.0 + y * y))
    z = y * y
    series = 1.0 / 13.0 - z * (1.0 / 15.0 - z / 17.0)
    series = 1.0 / 7.0 - z * (1.0 / 9.0 - z * (1.0 / 11.0 - z * series))
    series = y * (1.0 - z * (1.0 / 3.0 - z * (1.0 / 5.0 - z * series)))
    return 16.0 * series


@triton.jit
def atanh(x):
    """Compute (log(1 + x) − log(1 − x))/2."""
    return 0.5 * (log1p(x) - log1p(-x))


@triton.jit
def tan(x):
    """Compute sin x / cos x."""
    return tl.sin(x) / tl.cos(x)


@triton.jit
def normal_cdf(x):
    """Compute Φ(x), the distribution function of the standard normal."""
    return 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)


@triton.jit
def gelu(x):
    """Compute x Φ(x)."""
    return x * normal_cdf(x)


@triton.jit
def rounded(x):
    """Round to the nearest integer, halves to even."""
    low = tl.floor(x)
    gap = x - low
    odd = low - 2.0 * tl.floor(0.5 * low)
    return low + tl.where(gap > 0.5, 1.0, tl.where(gap == 0.5, odd, 0.0))
