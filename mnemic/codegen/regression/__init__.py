"""Memories of key–value pairs: a weighted mean, a line or an interpolation at every query.

``recurrent`` and ``chunk`` plan PyTorch's forms, ``elementary`` a chunk in the elementary
quantities that a fused kernel is made of.
"""

from mnemic.codegen.regression.elementary import elementary
from mnemic.codegen.regression.pair_forms import chunk, recurrent

__all__ = ["chunk", "elementary", "recurrent"]
