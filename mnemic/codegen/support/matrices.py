"""What acts on whole matrices: Newton-Schulz, and norms of rows or columns."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .links import entry_norm
from .rows import TINY
from .transforms import transformed

KEPT = 2**26
"""Bytes that the gradient of one iteration of Newton–Schulz may keep."""

QUINTIC = (3.4445, -4.7750, 2.0315)
"""The quintic's coefficients: a x + b x³ + c x⁵ on every singular value."""


SHIFT = 1e-7
"""What is added to the norm by which the iteration's first matrix is divided."""


def scaled_to_norms(memory: Tensor, norms: Tensor, *, axis: str) -> Tensor:
    """Scale rows (axis ``v``) or columns (``k``) to given norms; zero ones stay zero.

    x/‖x‖ is y/‖y‖ of y = x/max |x|, and so is its gradient: what has faded below 1e-19 has no
    square in float32.
    """
    over = -1 if axis == "v" else -2
    largest = _largest(memory, over)
    there = largest > TINY
    plain = memory / torch.where(there, largest, 1.0)
    size = torch.linalg.vector_norm(plain, dim=over, keepdim=True)
    wanted = norms[..., :, None] if axis == "v" else norms[..., None, :]
    return plain * (wanted / torch.where(there, size, 1.0))


def centred(memory: Tensor, *, axis: str) -> Tensor:
    """Subtract their means from rows (axis ``v``) or columns (``k``)."""
    return memory - memory.mean(-1 if axis == "v" else -2, keepdim=True)


def norms_of(memory: Tensor, *, axis: str) -> Tensor:
    """Measure the norms of the rows (axis ``v``) or columns (``k``)."""
    over = -1 if axis == "v" else -2
    largest = _largest(memory, over)
    sizes = torch.linalg.vector_norm(memory / largest, dim=over, keepdim=True)
    return (largest * sizes).squeeze(over)


def _largest(memory: Tensor, over: int) -> Tensor:
    """Return the largest entry's size of each row or column, at least ``TINY``: a constant, since
    what it divides and multiplies is the same whatever it is."""
    return memory.detach().abs().amax(over, keepdim=True).clamp_min(TINY)


def newton_schulz(matrix: Tensor, *, steps: int) -> Tensor:
    """Compute Muon's quintic towards the nearest semi-orthogonal matrix, of each [..., V, K].

    X ← a X + (b X Xᵀ + c (X Xᵀ)²) X, (a, b, c) = (3.4445, −4.7750, 2.0315), from X/(‖X‖_F + 1e-7);
    the smaller side multiplies, so tall matrices are transposed. A gradient keeps the argument and
    computes the iteration again where it would otherwise keep more than `KEPT` of it.
    """
    if torch.compiler.is_compiling() or transformed() or not matrix.requires_grad:
        return _iterated(matrix, steps)
    found: Tensor = _Orthogonalised.apply(matrix, steps)
    return found


class _Orthogonalised(torch.autograd.Function):
    """Newton–Schulz with its gradient by hand: products that add as they go, each once."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, steps: int) -> Tensor:
        kept: list[Tensor] | None = [] if _held(matrix, steps) <= KEPT else None
        out = _iterated(matrix, steps, kept)
        ctx.steps = steps
        ctx.save_for_backward(matrix, *(kept or ()))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        matrix, *kept = ctx.saved_tensors
        if torch.is_grad_enabled() or not kept:  # what was kept has no derivative of its own
            return newton_schulz_vjp(grads[0], matrix, steps=ctx.steps), None
        return _pulled(grads[0], matrix, kept), None


def newton_schulz_vjp(d: Tensor, matrix: Tensor, *, steps: int) -> Tensor:
    """Return the gradient of `newton_schulz` at d: back through its steps, which are made anew."""
    kept: list[Tensor] = []
    _iterated(matrix, steps, kept)
    return _pulled(d, matrix, kept)


def _held(matrix: Tensor, steps: int) -> int:
    """Return the bytes of X, A and P before each step."""
    least, most = sorted(matrix.shape[-2:])
    entries = matrix.numel() + 2 * (matrix.numel() // max(1, most)) * least
    return steps * entries * matrix.element_size()


def _iterated(matrix: Tensor, steps: int, kept: list[Tensor] | None = None) -> Tensor:
    """Run the quintic's iteration X ← P X, P = a I + b A + c A², A = X Xᵀ; append X, A and P before
    each step to ``kept``, if it is given."""
    first = _laid_wide(matrix, matrix)
    x = first / (_size(first) + SHIFT)
    a, b, c = QUINTIC
    scaled = a * torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)
    for _ in range(steps):
        gram = x @ x.mT
        mixed = torch.baddbmm(torch.add(scaled, gram, alpha=b), gram, gram, alpha=c)
        if kept is not None:
            kept += (x, gram, mixed)
        x = mixed @ x
    return _laid_back(x, matrix)


def _pulled(d: Tensor, matrix: Tensor, kept: Sequence[Tensor]) -> Tensor:
    """Return the gradient at d by what `_iterated` had before each step.

    Of X′ = P X: dP = dX′ Xᵀ, S = dP + dPᵀ, and dX = P dX′ + (b S + c (S A + A S)) X, since A and P
    are symmetric.
    """
    first, d = _laid_wide(matrix, matrix), _laid_wide(d, matrix)
    _, b, c = QUINTIC
    for x, gram, mixed in zip(kept[-3::-3], kept[-2::-3], kept[-1::-3], strict=True):
        d_mixed = d @ x.mT
        both = d_mixed + d_mixed.mT
        half = torch.baddbmm(both, both, gram, beta=b / 2, alpha=c)
        d = (mixed @ d).baddbmm_(half + half.mT, x)
    size = _size(first)
    along = (d * first).sum((-2, -1), keepdim=True)
    return _laid_back(d / (size + SHIFT) - first * (along / size / (size + SHIFT) ** 2), matrix)


def _size(x: Tensor) -> Tensor:
    return entry_norm(x, power=2.0)[..., None, None]


def _laid_wide(x: Tensor, like: Tensor) -> Tensor:
    """Return x as a batch of matrices, transposed where those of ``like`` are tall."""
    wide = x.mT if like.shape[-2] > like.shape[-1] else x
    return wide.reshape(-1, *wide.shape[-2:])


def _laid_back(x: Tensor, like: Tensor) -> Tensor:
    """Undo `_laid_wide`."""
    tall = like.shape[-2] > like.shape[-1]
    return (x.mT if tall else x).reshape(like.shape)
