"""A memory behind a kernel as a matrix of kept pairs, by its definition.

W = Σ_i u_i φ(k_i)ᵀ has a column u_i for each pair that a sequence keeps, so that W φ(x) is the
matrix times the vector of κ(k_i·x), and writing with φ(k_i) is writing to the column i.
"""

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.kernels import Kernel
from mnemic.compiler.oracle.evaluate import evaluate


def kept_keys(k: Tensor, earlier: Tensor | None) -> Tensor:
    """Return all keys that a sequence [B, T, n, H, d] keeps, those of its state first: [B, H, N,
    d]."""
    own = k.flatten(1, 2).transpose(1, 2)
    return own if earlier is None else torch.cat([earlier.double(), own], 2)


def similarities(kernel: Kernel, x: Tensor, keys: Tensor) -> Tensor:
    """Return κ(k_i·x) of every kept key: [..., H, d] and [B, H, N, d] → [..., H, N]."""
    wide = keys.reshape(keys.shape[0], *[1] * (x.ndim - 3), *keys.shape[1:])
    return similarity(kernel, (wide * x[..., None, :]).sum(-1))


def similarity(kernel: Kernel, product: Tensor) -> Tensor:
    """Return κ(s)."""
    return evaluate(kernel.expr, {sym.s: product}) + torch.zeros_like(product)


def columns(k: Tensor, count: int) -> Tensor:
    """Return the column, of ``count``, of each key of [B, T, n, H, d]: one-hot [B, T, n, H, N]."""
    batch, length, micro, heads = k.shape[:4]
    first = count - length * micro
    eye = torch.eye(count, dtype=torch.float64)[first:]
    place = eye.reshape(1, length, micro, 1, count)
    return place.expand(batch, length, micro, heads, count)
