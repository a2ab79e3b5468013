"""Recursive least squares: one token by Sherman–Morrison, one chunk by one Cholesky factor."""

import torch
from torch import Tensor

from .definite import cholesky


def outer(x: Tensor, y: Tensor) -> Tensor:
    """x yᵀ."""
    return x[..., :, None] * y[..., None, :]


def sustained(state: Tensor, factor: Tensor, new: Tensor) -> Tensor:
    """factor·M + new: [..., V, K], [...], [..., V, K]."""
    return factor[..., None, None] * state + new


def kalman_gain(
    p: Tensor, k: Tensor, weighed: Tensor, log_forget: Tensor | None = None
) -> Tensor:  # fmt: skip
    """P wk / (γ + kᵀ P wk), wk the key times its weight: [..., K, K], [..., K] twice, [...]."""
    pk = (p @ weighed[..., None])[..., 0]
    forget = 1.0 if log_forget is None else torch.exp(log_forget)[..., None]
    return pk / (forget + (k * pk).sum(-1, keepdim=True))


def downdated(p: Tensor, k: Tensor, gain: Tensor, log_forget: Tensor | None = None) -> Tensor:
    """(P − g (P k)ᵀ) / γ, kept symmetric: under forgetting, what is not grows as 1/γᵗ."""
    pk = (p @ k[..., None])[..., 0]
    following = p - outer(gain, pk)
    following = (following + following.mT) / 2
    return following if log_forget is None else following * torch.exp(-log_forget)[..., None, None]


def innovation_factor(kp: Tensor, k: Tensor, kept: Tensor | None = None) -> Tensor:
    """The Cholesky factor of diag(β) + K P Kᵀ: [..., C, K] twice, [..., C] → [..., C, C]."""
    kernel = kp @ k.mT
    eye = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device)
    beta = eye if kept is None else eye * kept[..., None, :]
    return cholesky(kernel + beta)


def solved(factor: Tensor, x: Tensor) -> Tensor:
    """L⁻¹ x."""
    return torch.linalg.solve_triangular(factor, x, upper=False)


def shrunk(p: Tensor, x: Tensor, kept: Tensor | None = None) -> Tensor:
    """(P − XᵀX) / β at the chunk's end, kept symmetric: see ``downdated``."""
    following = p - x.mT @ x
    following = (following + following.mT) / 2
    return following if kept is None else following / kept[..., -1, None, None]
