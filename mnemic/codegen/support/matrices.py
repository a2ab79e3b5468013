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

    X ← X (a I + b XᵀX + c (XᵀX)²), (a, b, c) = (3.4445, −4.7750, 2.0315), from X/(‖X‖_F + 1e-7);
    the smaller side multiplies, so wide matrices are transposed. A gradient keeps the argument and
    computes the iteration again where it would otherwise keep more than `KEPT` of it.
    """
    pulled = matrix.requires_grad and torch.is_grad_enabled()
    if transformed() or torch.compiler.is_exporting() or not pulled:
        return _iterated(matrix, steps)
    found: Tensor = _Orthogonalised.apply(matrix, steps)
    return found


class _Orthogonalised(torch.autograd.Function):
    """Newton–Schulz with its gradient by hand: products that add as they go, each once."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, steps: int) -> Tensor:
        kept: list[Tensor] = []
        out = _iterated(matrix, steps, kept if _held(matrix, steps) <= KEPT else None)
        ctx.steps = steps
        ctx.save_for_backward(matrix, *kept)
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
    least, most = min(matrix.shape[-2:]), max(matrix.shape[-2:])
    entries = matrix.numel() + 2 * (matrix.numel() // max(1, most)) * least
    return steps * entries * matrix.element_size()


def _iterated(matrix: Tensor, steps: int, kept: list[Tensor] | None = None) -> Tensor:
    """Run the quintic's iteration X ← X P, P = a I + b A + c A², A = Xᵀ X, on tall matrices; append
    X, A and P before each step to ``kept``, if it is given.

    Wide matrices are transposed in memory: libraries multiply small Xᵀ X in half the time of X Xᵀ.
    """
    first = _laid_tall(matrix, matrix)
    x = first / (_size(first) + SHIFT)
    a, b, c = QUINTIC
    scaled = a * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    for _ in range(steps):
        gram = x.mT @ x
        mixed = torch.baddbmm(torch.add(scaled, gram, alpha=b), gram, gram, alpha=c)
        if kept is not None:
            kept += (x, gram, mixed)
        x = x @ mixed
    return _laid_back(x, matrix)


def _pulled(d: Tensor, matrix: Tensor, kept: Sequence[Tensor]) -> Tensor:
    """Return the gradient at d by what `_iterated` had before each step.

    Of X′ = X P: dP = Xᵀ dX′, S = dP + dPᵀ, and dX = dX′ P + X (b S + c (S A + A S)), since A and P
    are symmetric.
    """
    first, d = _laid_tall(matrix, matrix), _laid_tall(d, matrix)
    _, b, c = QUINTIC
    for x, gram, mixed in zip(kept[-3::-3], kept[-2::-3], kept[-1::-3], strict=True):
        d_mixed = x.mT @ d
        both = d_mixed + d_mixed.mT
        half = torch.baddbmm(both, both, gram, beta=b / 2, alpha=c)
        d = (d @ mixed).baddbmm_(x, half + half.mT)
    size = _size(first)
    along = (d * first).sum((-2, -1), keepdim=True)
    return _laid_back(d / (size + SHIFT) - first * (along / size / (size + SHIFT) ** 2), matrix)


def _size(x: Tensor) -> Tensor:
    return entry_norm(x, power=2.0)[..., None, None]


def _laid_tall(x: Tensor, like: Tensor) -> Tensor:
    """Return x as a batch of matrices, transposed in memory where those of ``like`` are wide."""
    tall = x.mT if like.shape[-2] < like.shape[-1] else x
    return tall.reshape(-1, *tall.shape[-2:]).contiguous()


def _laid_back(x: Tensor, like: Tensor) -> Tensor:
    """Undo `_laid_tall`, but not in memory."""
    wide = like.shape[-2] < like.shape[-1]
    tall = x.reshape(*like.shape[:-2], *x.shape[-2:])
    return tall.mT if wide else tall
