"""Levels of a Fenwick tree between the rows of an aligned chunk."""

import triton
import triton.language as tl

from .blocks import order

DEPTH = tl.constexpr(8)
"""Levels between rows of a chunk of at most 128."""


@triton.jit
def level_mask(weights):
    """Return λ_t at the level of s, the highest digit in which t and s differ: [C, L] → [C, C].

    Level l is where 2 (t xor s) + 1 has its highest digit in place l.
    """
    t, s = order(weights.shape[0])
    differ = 2 * (t ^ s) + 1
    column = tl.arange(0, weights.shape[1])[None, :]
    mask = tl.zeros((weights.shape[0], weights.shape[0]), weights.dtype)
    for level in range(DEPTH):
        own = tl.sum(tl.where(column == level, weights, 0.0), 1)
        mask = tl.where((differ >> level) == 1, own[:, None], mask)
    return mask


@triton.jit
def level_sums(grad, like):
    """Add the gradient of ``level_mask`` up over the sources of each level: [C, C] → [C, L]."""
    t, s = order(grad.shape[0])
    differ = 2 * (t ^ s) + 1
    column = tl.arange(0, like.shape[1])[None, :]
    sums = tl.zeros((grad.shape[0], like.shape[1]), grad.dtype)
    for level in range(DEPTH):
        own = tl.sum(tl.where((differ >> level) == 1, grad, 0.0), 1)
        sums = tl.where(column == level, own[:, None], sums)
    return sums
