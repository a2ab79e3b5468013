"""A matrix after every row of a chunk: few passes over it, in the gradient too."""

from typing import Any

import torch
from torch import Tensor

from .transforms import transformed


def accumulate(weights: Tensor, u: Tensor, k: Tensor) -> Tensor:
    """Compute Σ_s weights_ts u_s k_sᵀ for every row t: → [..., C, V, K]."""
    if transformed():
        return _accumulated(weights, u, k)
    found: Tensor = _Accumulated.apply(weights, u, k)
    return found


def decayed_onto(state: Tensor, factor: Tensor, sums: Tensor) -> Tensor:
    """Compute factor_t A + sums_t: [..., V, K], [..., C], [..., C, V, K] → [..., C, V, K]."""
    if transformed():
        return torch.addcmul(sums, state[..., None, :, :], factor[..., None, None])
    found: Tensor = _Decayed.apply(state, factor, sums)
    return found


def _accumulated(weights: Tensor, u: Tensor, k: Tensor) -> Tensor:
    if u.shape[-1] > k.shape[-1]:
        return (weights @ _outer(u, k)).unflatten(-1, (u.shape[-1], k.shape[-1]))
    return (_weighed(weights, u) @ k).unflatten(-2, (weights.shape[-2], u.shape[-1]))


def _weighed(weights: Tensor, u: Tensor) -> Tensor:
    """Return weights_ts u_sυ as a matrix: [..., C, S], [..., S, V] → [..., C·V, S]."""
    across = u.mT.contiguous()  # the product is laid out as its factors are
    return (weights[..., :, None, :] * across[..., None, :, :]).flatten(-3, -2)


def _outer(u: Tensor, k: Tensor) -> Tensor:
    """Return u_s k_sᵀ as a matrix: [..., S, V], [..., S, K] → [..., S, V·K]."""
    return (u[..., :, None] * k[..., None, :]).flatten(-2)


class _Accumulated(torch.autograd.Function):
    """M_t = Σ_s w_ts u_s k_sᵀ, the shorter of u and k taken together with the weights."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, u: Tensor, k: Tensor) -> Tensor:
        ctx.save_for_backward(weights, u, k)
        return _accumulated(weights, u, k)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        weights, u, k = ctx.saved_tensors
        return (_through_sources if u.shape[-1] > k.shape[-1] else _through_keys)(
            grads[0], weights, u, k
        )


def _through_sources(grad: Tensor, weights: Tensor, u: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """Return dw, du, dk: with X_s = Σ_t w_ts dM_t, du = X k and dk = Xᵀ u."""
    wide = grad.flatten(-2)  # [..., C, V·K]
    gathered = (weights.mT @ wide).unflatten(-1, grad.shape[-2:])
    d_k = (u[..., None, :] @ gathered)[..., 0, :]
    return wide @ _outer(u, k).mT, (gathered @ k[..., None])[..., 0], d_k


def _through_keys(grad: Tensor, weights: Tensor, u: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """Return dw, du, dk: with P_ts = dM_t k_s, dw_ts = u_s·P_ts, du_s = Σ_t w_ts P_ts."""
    tall = grad.flatten(-3, -2)  # [..., C·V, K]
    met = (tall @ k.mT).unflatten(-2, grad.shape[-3:-1])
    d_weights = (met * u.mT.contiguous()[..., None, :, :]).sum(-2)
    d_u = (met * weights[..., :, None, :]).sum(-3).mT
    return d_weights, d_u, _weighed(weights, u).mT @ tall


class _Decayed(torch.autograd.Function):
    """M_t = f_t A + X_t: dA = Σ_t f_t dM_t, df_t = dM_t·A, dX = dM."""

    @staticmethod
    def forward(ctx: Any, state: Tensor, factor: Tensor, sums: Tensor) -> Tensor:
        ctx.save_for_backward(state, factor)
        return torch.addcmul(sums, state[..., None, :, :], factor[..., None, None])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        state, factor = ctx.saved_tensors
        wide = grads[0].flatten(-2)  # [..., C, V·K]
        d_state = (factor[..., None, :] @ wide)[..., 0, :].view_as(state)
        d_factor = (wide @ state.flatten(-2)[..., None])[..., 0]
        return d_state, d_factor, grads[0]
