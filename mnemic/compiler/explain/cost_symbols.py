"""The symbols in which costs are expressed."""

import sympy as sp

T, K, V, D, B, C, M, S = sp.symbols("T d_k d_v D b c m s", positive=True)
"""Length, key, value and feature sizes, chunk, window, hidden width, bytes a number."""
N = sp.Symbol("n", positive=True, integer=True)
"""Steps a token; not the norm n of a loss."""
