"""What acts on whole matrices: Newton-Schulz, and norms of rows or columns."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .links import entry_norm
from .rows import TINY
from .transforms import transformed

KEPT = 2**26
"""Bytes that the gradient of one iteration of Newton–Schulz may keep."""

QUINTIC = (3.4445, -4.7750, 2.0315)
"""The quintic's coefficients: a x + b x³ + c x⁵ on every singular value."""


def scaled_to_norms(memory: Tensor, norms: Tensor, *, axis: str) -> Tensor:
    """Scale rows (axis ``v``) or columns (``k``) to given norms; zero ones stay zero."""
    over = -1 if axis == "v" else -2
    size = torch.linalg.vector_norm(memory, dim=over, keepdim=True)
    wanted = norms[..., :, None] if axis == "v" else norms[..., None, :]
    return memory * (wanted / torch.where(size > TINY, size, 1.0))


def centred(memory: Tensor, *, axis: str) -> Tensor:
    """Subtract their means from rows (axis ``v``) or columns (``k``)."""
    return memory - memory.mean(-1 if axis == "v" else -2, keepdim=True)


def norms_of(memory: Tensor, *, axis: str) -> Tensor:
    """Measure the norms of the rows (axis ``v``) or columns (``k``)."""
    return torch.linalg.vector_norm(memory, dim=-1 if axis == "v" else -2)


def newton_schulz(matrix: Tensor, *, steps: int) -> Tensor:
    """Compute Muon's quintic towards the nearest semi-orthogonal matrix, of each [..., V, K].

    X ← a X + (b X Xᵀ + c (X Xᵀ)²) X, (a, b, c) = (3.4445, −4.7750, 2.0315), from X/(‖X‖_F + 1e-7);
    the smaller side multiplies, so tall matrices are transposed. A gradient keeps the argument and
    computes the iteration again where it would otherwise keep more than `KEPT` of it.
    """
    held = (steps + 1) * matrix.numel() * matrix.element_size()
    plain = torch.compiler.is_compiling() or transformed() or not matrix.requires_grad
    if plain or held <= KEPT:
        return _iterated(matrix, steps)
    found: Tensor = checkpoint(_iterated, matrix, steps, use_reentrant=False)
    return found


def _iterated(matrix: Tensor, steps: int) -> Tensor:
    """Run the quintic's iteration from the matrix scaled to norm one."""
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = matrix.mT if tall else matrix
    x = x / (entry_norm(x, power=2.0)[..., None, None] + 1e-7)
    a, b, c = QUINTIC
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
