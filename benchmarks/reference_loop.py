"""Token loops written by hand in plain PyTorch, to time compiled rules against.

Shapes: q, k [B, T, H, d_k], v and the result [B, T, H, d_v], coefficients [B, T, H]. What does not
depend on the memory (exponentials, products with a coefficient, the layout) is computed for all
tokens before the loop. A token then costs three batched products and a scaling; where no gradient
is asked for, they write into the memory in place.

Each rule comes twice: as the papers write it, W [d_v, d_k] with vectors as columns; and ``_rows``,
the same arithmetic on Wᵀ with vectors as rows, which a CPU's BLAS runs several times faster.
"""

import torch
from torch import Tensor


def gated_delta(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, eta: Tensor) -> Tensor:
    """u = v_t − W (α_t k_t), W ← α_t W + u (η_t k_t)ᵀ, y_t = W q_t."""
    alpha, rate, keys = _columns(log_alpha.exp()[..., None]), _columns(eta[..., None]), _columns(k)
    seen, write = (alpha * keys).unbind(), (rate * keys).mT.unbind()
    W = v.new_zeros(q.shape[0] * q.shape[2], v.shape[-1], q.shape[-1])
    scale = torch.mul if torch.is_grad_enabled() else Tensor.mul_
    outs = []
    for a, k_t, w_t, q_t, v_t in zip(
        alpha.unbind(), seen, write, _columns(q).unbind(), _columns(v).unbind(), strict=True
    ):
        u = torch.baddbmm(v_t, W, k_t, alpha=-1)
        W = scale(W, a).baddbmm_(u, w_t)
        outs.append(torch.bmm(W, q_t))
    return _tokens(torch.stack(outs).squeeze(-1), q.shape[0])


def gated_delta_rows(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, eta: Tensor) -> Tensor:
    """The same on X = Wᵀ: u = v_t − (α_t k_t) X, X ← α_t X + (η_t k_t)ᵀ u, y_t = q_t X."""
    alpha, rate, keys = _rows(log_alpha.exp()[..., None]), _rows(eta[..., None]), _rows(k)
    seen, write = (alpha * keys).unbind(), (rate * keys).mT.unbind()
    X = v.new_zeros(q.shape[0] * q.shape[2], q.shape[-1], v.shape[-1])
    scale = torch.mul if torch.is_grad_enabled() else Tensor.mul_
    outs = []
    for a, k_t, w_t, q_t, v_t in zip(
        alpha.unbind(), seen, write, _rows(q).unbind(), _rows(v).unbind(), strict=True
    ):
        u = torch.baddbmm(v_t, k_t, X, alpha=-1)
        X = scale(X, a).baddbmm_(w_t, u)
        outs.append(torch.bmm(q_t, X))
    return _tokens(torch.stack(outs).squeeze(-2), q.shape[0])


def huber(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, eta: Tensor, delta: Tensor) -> Tensor:
    """u = clip(v_t − W k_t, ±δ_t), W ← α_t W + u (η_t k_t)ᵀ, y_t = W q_t."""
    alpha, keys, high = (
        _columns(log_alpha.exp()[..., None]),
        _columns(k),
        _columns(delta[..., None]),
    )
    write = (_columns(eta[..., None]) * keys).mT.unbind()
    W = v.new_zeros(q.shape[0] * q.shape[2], v.shape[-1], q.shape[-1])
    scale = torch.mul if torch.is_grad_enabled() else Tensor.mul_
    outs = []
    for a, k_t, w_t, low_t, high_t, q_t, v_t in zip(
        alpha.unbind(), keys.unbind(), write, (-high).unbind(), high.unbind(),
        _columns(q).unbind(), _columns(v).unbind(), strict=True,
    ):  # fmt: skip
        u = torch.baddbmm(v_t, W, k_t, alpha=-1).clamp(low_t, high_t)
        W = scale(W, a).baddbmm_(u, w_t)
        outs.append(torch.bmm(W, q_t))
    return _tokens(torch.stack(outs).squeeze(-1), q.shape[0])


def huber_rows(
    q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, eta: Tensor, delta: Tensor
) -> Tensor:
    """The same on X = Wᵀ: u = clip(v_t − k_t X, ±δ_t), X ← α_t X + (η_t k_t)ᵀ u, y_t = q_t X."""
    alpha, keys, high = _rows(log_alpha.exp()[..., None]), _rows(k), _rows(delta[..., None])
    write = (_rows(eta[..., None]) * keys).mT.unbind()
    X = v.new_zeros(q.shape[0] * q.shape[2], q.shape[-1], v.shape[-1])
    scale = torch.mul if torch.is_grad_enabled() else Tensor.mul_
    outs = []
    for a, k_t, w_t, low_t, high_t, q_t, v_t in zip(
        alpha.unbind(), keys.unbind(), write, (-high).unbind(), high.unbind(),
        _rows(q).unbind(), _rows(v).unbind(), strict=True,
    ):  # fmt: skip
        u = torch.baddbmm(v_t, k_t, X, alpha=-1).clamp(low_t, high_t)
        X = scale(X, a).baddbmm_(w_t, u)
        outs.append(torch.bmm(q_t, X))
    return _tokens(torch.stack(outs).squeeze(-2), q.shape[0])


def _columns(x: Tensor) -> Tensor:
    """[B, T, H, d] → [T, B·H, d, 1], contiguous."""
    return x.transpose(0, 1).flatten(1, 2).unsqueeze(-1).contiguous()


def _rows(x: Tensor) -> Tensor:
    """[B, T, H, d] → [T, B·H, 1, d], contiguous."""
    return x.transpose(0, 1).flatten(1, 2).unsqueeze(-2).contiguous()


def _tokens(y: Tensor, batch: int) -> Tensor:
    """[T, B·H, d] → [B, T, H, d]."""
    return y.unflatten(1, (batch, -1)).transpose(0, 1)
