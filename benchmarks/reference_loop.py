"""Token loops written by hand in plain PyTorch, to time compiled rules against.

Shapes: q, k [B, T, H, d_k], v and the result [B, T, H, d_v], coefficients [B, T, H].
What does not depend on the memory (exponentials, the rate times the key, the layout) is computed
for all tokens before the loop. A token then costs a handful of batched products; where no gradient
is asked for they write into the memory and into the output in place.
"""

import torch
from torch import Tensor


def gated_delta(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, eta: Tensor) -> Tensor:
    """W_t = α_t W_{t-1} − η_t (α_t W_{t-1} k_t − v_t) k_tᵀ, y_t = W_t q_t.

    As the state X = Wᵀ [B·H, d_k, d_v] and row vectors, so that every product is contiguous:
    X ← α X + (η k)ᵀ (v − (α k) X), y = q X.
    """
    alpha = _scalars(log_alpha.exp())
    keys = _rows(k)
    step = (_rows(eta[..., None]) * keys).mT.unbind(0)
    scaled = (_rows(log_alpha.exp()[..., None]) * keys).unbind(0)
    queries, values = _rows(q).unbind(0), _rows(v).unbind(0)
    if torch.is_grad_enabled():
        return _gated_delta_with_gradients(alpha, scaled, step, queries, values, q.shape[0])
    X = v.new_zeros(queries[0].shape[0], q.shape[-1], v.shape[-1])
    out = v.new_empty(len(values), X.shape[0], 1, v.shape[-1])
    error = v.new_empty(X.shape[0], 1, v.shape[-1])
    for a, k_t, step_t, q_t, v_t, y_t in zip(
        alpha, scaled, step, queries, values, out.unbind(0), strict=True
    ):
        torch.baddbmm(v_t, k_t, X, alpha=-1, out=error)
        X.mul_(a).baddbmm_(step_t, error)
        torch.bmm(q_t, X, out=y_t)
    return _tokens(out, q.shape[0])


def _gated_delta_with_gradients(
    alpha: tuple[Tensor, ...], scaled: tuple[Tensor, ...], step: tuple[Tensor, ...],
    queries: tuple[Tensor, ...], values: tuple[Tensor, ...], batch: int,
) -> Tensor:  # fmt: skip
    """The same with a new memory a token: autograd keeps the old ones."""
    X = values[0].new_zeros(values[0].shape[0], queries[0].shape[-1], values[0].shape[-1])
    outs = []
    for a, k_t, step_t, q_t, v_t in zip(alpha, scaled, step, queries, values, strict=True):
        error = torch.baddbmm(v_t, k_t, X, alpha=-1)
        X = (a * X).baddbmm_(step_t, error)
        outs.append(torch.bmm(q_t, X))
    return _tokens(torch.stack(outs), batch)


def huber(
    q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, eta: Tensor, delta: Tensor
) -> Tensor:
    """W_t = α_t W_{t-1} − η_t clip(W_{t-1} k_t − v_t, ±δ_t) k_tᵀ, y_t = W_t q_t; no gradients."""
    alpha = _scalars(log_alpha.exp())
    keys = _rows(k)
    step = (_rows(eta[..., None]) * keys).mT.unbind(0)
    upper = _rows(delta[..., None])
    limits = (-upper).unbind(0), upper.unbind(0)
    queries, values = _rows(q).unbind(0), _rows(v).unbind(0)
    X = v.new_zeros(values[0].shape[0], q.shape[-1], v.shape[-1])
    out = v.new_empty(len(values), X.shape[0], 1, v.shape[-1])
    error = v.new_empty(X.shape[0], 1, v.shape[-1])
    for a, k_t, step_t, q_t, v_t, low, high, y_t in zip(
        alpha, keys.unbind(0), step, queries, values, *limits, out.unbind(0), strict=True
    ):
        torch.baddbmm(v_t, k_t, X, alpha=-1, out=error)
        torch.clamp(error, low, high, out=error)
        X.mul_(a).baddbmm_(step_t, error)
        torch.bmm(q_t, X, out=y_t)
    return _tokens(out, q.shape[0])


def _rows(x: Tensor) -> Tensor:
    """[B, T, H, d] → [T, B·H, 1, d], contiguous."""
    return x.transpose(0, 1).flatten(1, 2).unsqueeze(2).contiguous()


def _scalars(x: Tensor) -> tuple[Tensor, ...]:
    """[B, T, H] → T times [B·H, 1, 1]."""
    return x.transpose(0, 1).flatten(1, 2)[..., None, None].contiguous().unbind(0)


def _tokens(y: Tensor, batch: int) -> Tensor:
    """[T, B·H, 1, d] → [B, T, H, d]."""
    return y.squeeze(2).unflatten(1, (batch, -1)).transpose(0, 1)
