"""Recursive least squares: one token by Sherman–Morrison, one chunk by one Cholesky factor.

A chunk's factor is that of diag(β) + K P Kᵀ, β_t being what the decays leave of the past at row t.
Its pivots are of the size of β, differences of numbers of the size of K P Kᵀ: they lose 1/β of
their digits, where the token-by-token form loses 1/γ a token and forgets it. So a chunk takes few
rows, and PyTorch computes the factor and what it solves in float64. Kernels compute in float32, and
take no chunks of which β leaves too little: see ``launched.fainter``.
"""

import torch
from torch import Tensor

from .definite import Forgotten, cholesky
from .transforms import host_reads


def outer(x: Tensor, y: Tensor) -> Tensor:
    """Compute x yᵀ."""
    return x[..., :, None] * y[..., None, :]


def sustained(state: Tensor, factor: Tensor, new: Tensor) -> Tensor:
    """Compute factor·M + new: [..., V, K], [...], [..., V, K]."""
    return factor[..., None, None] * state + new


def kalman_gain(
    p: Tensor, k: Tensor, weighed: Tensor, log_forget: Tensor | None = None
) -> Tensor:  # fmt: skip
    """Compute P wk / (γ + kᵀ P wk), wk the weighted key: [..., K, K], [..., K] twice, [...].

    Raises ``Forgotten`` where γ is no more than a rounding of that sum, which is all that is left
    of P along k: the token after it would divide by noise.
    """
    pk = (p @ weighed[..., None])[..., 0]
    met = (k * pk).sum(-1, keepdim=True)
    forget = torch.ones_like(met) if log_forget is None else torch.exp(log_forget)[..., None]
    size = forget + met
    if host_reads():
        _refuse_noise(forget, size, torch.finfo(size.dtype).eps)
    return pk / size


def _refuse_noise(left: Tensor, whole: Tensor, digits: float) -> None:
    """Raise ``Forgotten`` unless what a difference left is above so much of what it began with."""
    if not bool(((whole > 0) & (left > digits * whole)).all()):
        raise Forgotten


def downdated(p: Tensor, k: Tensor, gain: Tensor, log_forget: Tensor | None = None) -> Tensor:
    """Compute (P − g (P k)ᵀ) / γ, kept symmetric: under forgetting, what is not grows as 1/γᵗ."""
    pk = (p @ k[..., None])[..., 0]
    following = p - outer(gain, pk)
    following = (following + following.mT) / 2
    return following if log_forget is None else following * torch.exp(-log_forget)[..., None, None]


LEAST = 1e-10
"""What a pivot is to be of the entry that it began as: of 16 digits six are left."""


def widened(x: Tensor) -> Tensor:
    """Return x in float64, where it is followed by a difference that loses digits."""
    return x.double()


def narrowed(x: Tensor, like: Tensor) -> Tensor:
    """Return x in the dtype of another tensor."""
    return x.to(like.dtype)


def innovation_factor(kp: Tensor, k: Tensor, kept: Tensor | None = None) -> Tensor:
    """Compute the Cholesky factor of diag(β) + K P Kᵀ: [..., C, K] twice, [..., C] → [..., C, C].

    Raises ``Forgotten`` where there is none, or its pivots have lost their digits.
    """
    kernel = kp @ k.mT
    eye = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device)
    beta = eye if kept is None else eye * kept[..., None, :]
    matrix = kernel + beta
    factor = cholesky(matrix)
    if host_reads():
        pivots, sizes = (x.diagonal(dim1=-2, dim2=-1) for x in (factor, matrix))
        _refuse_noise(pivots.square(), sizes, LEAST)
    return factor


def solved(factor: Tensor, x: Tensor) -> Tensor:
    """Compute L⁻¹ x."""
    return torch.linalg.solve_triangular(factor, x, upper=False)


def shrunk(p: Tensor, x: Tensor, kept: Tensor | None = None) -> Tensor:
    """Compute (P − XᵀX) / β at the chunk's end, kept symmetric: what is not would grow."""
    following = p - x.mT @ x
    following = (following + following.mT) / 2
    return following if kept is None else following / kept[..., -1, None, None]
