"""Shifts of squares of rows, each a product inside a loop of its own.

Triton chooses one layout of warps for all products in a body of code, by the last of them, and for
a square of few rows it would put all warps along the rows.
"""

import triton
import triton.language as tl

from .blocks import order
from .products import exact


@triton.jit
def delayed_square(x, PRECISION: tl.constexpr, FILL: tl.constexpr):
    """Give each row the one before, ``FILL`` to the first: [C, C] → [C, C]."""
    t, s = order(x.shape[0])
    shift = tl.where(t == s + 1, 1.0, 0.0).to(x.dtype)
    return tl.where(t == 0, FILL, _apart(shift, x, PRECISION))


@triton.jit
def advanced_square(x, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """Give each row the one ``ROWS`` further on, zero to the last ones: [C, C] → [C, C]."""
    t, s = order(x.shape[0])
    shift = tl.where(s == t + ROWS, 1.0, 0.0).to(x.dtype)
    return _apart(shift, x, PRECISION)


@triton.jit
def _apart(left, right, PRECISION: tl.constexpr):
    """Run ``exact`` in a loop of one iteration, whose count the compiler does not know."""
    found = tl.zeros_like(right)
    for _ in tl.range(0, tl.minimum(tl.num_programs(0), 1), num_stages=1):
        found += exact(left, right, PRECISION)
    return found
