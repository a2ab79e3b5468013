"""Numbers that tiles share."""

import triton.language as tl

TINY = tl.constexpr(1e-30)
"""Below this a norm counts as zero."""

BASE = tl.constexpr(16)
"""Rows of a triangular block that is solved row by row."""
