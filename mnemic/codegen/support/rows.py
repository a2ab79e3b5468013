"""Small operations on rows: predictions, norms, sums, delayed and decayed scores."""

from typing import Any

import torch
from torch import Tensor

from . import chunks
from .transforms import host_reads, transformed

TINY = 1e-30
"""Below this a norm counts as zero: 0/0 at exact hits becomes 0."""

VAST = 1e10
"""Rows are brought down to this before a LayerNorm squares them."""


def add_product(addend: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Compute a + L R, in one kernel where the shapes allow."""
    if addend.ndim == left.ndim == right.ndim == 3:
        return torch.baddbmm(addend, left, right)
    return addend + left @ right


def subtract_product(addend: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Compute a − L R, in one kernel where the shapes allow."""
    if addend.ndim == left.ndim == right.ndim == 3:
        return torch.baddbmm(addend, left, right, alpha=-1)
    return addend - left @ right


def recall(memory: Tensor, x: Tensor) -> Tensor:
    """Compute M x: [..., V, K], [..., K] → [..., V]; for each t if only x has a first axis T."""
    if x.ndim == memory.ndim:
        return (x.movedim(0, -2) @ memory.mT).movedim(-2, 0)
    return (memory @ x[..., None])[..., 0]  # so that the memory's gradient is laid out as it is


def recall_rows(memory: Tensor, x: Tensor) -> Tensor:
    """Compute M x for every row: [..., V, K], [..., r, K] → [..., r, V]."""
    return x @ memory.mT


def pull(memory: Tensor, x: Tensor) -> Tensor:
    """Compute Mᵀ x: [..., V, K], [..., V] → [..., K]."""
    return (x[..., None, :] @ memory)[..., 0, :]


def pull_rows(memory: Tensor, x: Tensor) -> Tensor:
    """Compute Mᵀ x for every row: [..., V, K], [..., r, V] → [..., r, K]."""
    return x @ memory


def recall_row(vector: Tensor, x: Tensor) -> Tensor:
    """Compute n·x for every row: [..., K], [..., C, K] → [..., C]."""
    return (x @ vector[..., None])[..., 0]


def total(x: Tensor) -> Tensor:
    """Add up the last axis."""
    return x.sum(-1)


def total_rows(x: Tensor) -> Tensor:
    """Add up rows: [..., C, K] → [..., K]."""
    return x.sum(-2)


def weigh(weights: Tensor, rate: Tensor | None = None) -> Tensor:
    """Compute Σ_s weights_ts rate_s: → [..., C]."""
    return weights.sum(-1) if rate is None else (weights @ rate[..., None])[..., 0]


def norm(x: Tensor) -> Tensor:
    """Compute ‖x‖ over the last axis; 1 where x is zero, so that x/‖x‖ is 0 with a finite slope."""
    size = torch.linalg.vector_norm(x, dim=-1)
    return torch.where(size > TINY, size, 1.0)


def distance(y: Tensor, v: Tensor) -> Tensor:
    """Compute n = ‖ŷ − v‖ over the value channels, 1 at an exact hit."""
    return norm(y - v)


def squared_norm(x: Tensor) -> Tensor:
    """Compute κ = ‖x‖² over the last axis, at least ``TINY``."""
    return (x * x).sum(-1).clamp_min(TINY)


def column(x: Tensor) -> Tensor:
    """Add a last axis of one: [..., C] → [..., C, 1]."""
    return x[..., None]


def as_vector(x: Tensor, like: Tensor) -> Tensor:
    """Repeat a scalar a row as a vector a row: [...] → [..., K]."""
    return x[..., None].expand(like.shape)


def filled(like: Tensor, *, value: float) -> Tensor:
    """Return a constant in the shape of ``like``."""
    return torch.full_like(like, value)


def lower(x: Tensor) -> Tensor:
    """Return the lower triangle with its diagonal."""
    return x.tril()


def lower_ones(like: Tensor) -> Tensor:
    """Return a lower triangle of ones: [..., C] → [..., C, C]."""
    return lower_ones_of(like[..., None])


def lower_ones_of(like: Tensor) -> Tensor:
    """Return a lower triangle of ones: [..., C, K] → [..., C, C]."""
    size = like.shape[-2]
    return like.new_ones(size, size).tril().expand(*like.shape[:-2], size, size)


def unit_of(like: Tensor) -> Tensor:
    """Return a unit matrix: [..., C, K] → [..., C, C]."""
    size = like.shape[-2]
    eye = torch.eye(size, dtype=like.dtype, device=like.device)
    return eye.expand(*like.shape[:-2], size, size)


def running_product(x: Tensor) -> Tensor:
    """Compute products from the chunk's start: [..., C] → [..., C]."""
    return x.cumprod(-1)


def matrix_rows(matrix: Tensor, x: Tensor) -> Tensor:
    """Compute M x: [..., C, C], [..., C] → [..., C]."""
    return (matrix @ x[..., None])[..., 0]


def vector_matrix(x: Tensor, matrix: Tensor) -> Tensor:
    """Compute xᵀ M: [..., C], [..., C, S] → [..., S]."""
    return (x[..., None, :] @ matrix)[..., 0, :]


def scores_after(targets: Tensor, keys: Tensor, log_decay: Tensor, *, rows: int) -> Tensor:
    """Compute (x_t·k_s) with the decay over s < i ≤ t, s ≤ t; keys may be ``rows`` a token."""
    if rows == 1:
        return chunks.decayed_scores(targets, keys, log_decay)
    return chunks.row_scores(_by_token(targets, log_decay), _by_token(keys, log_decay), log_decay)


def scores_before(targets: Tensor, keys: Tensor, log_decay: Tensor, *, rows: int) -> Tensor:
    """Compute (x_t·k_s) with the decay over s < i < t, for s < t; zero elsewhere."""
    left, right = _by_token(targets, log_decay), _by_token(keys, log_decay)
    ahead = torch.cat([left[..., 1:, :, :], torch.zeros_like(left[..., :1, :, :])], -3)
    scores = (
        chunks.row_scores(ahead, right, log_decay)
        if rows > 1
        else chunks.decayed_scores(ahead[..., 0, :], right[..., 0, :], log_decay)
    )
    width = left.shape[-2]
    return torch.cat([torch.zeros_like(scores[..., :width, :]), scores[..., :-width, :]], -2)


def _by_token(x: Tensor, log_decay: Tensor) -> Tensor:
    tokens = log_decay.shape[-2]
    return x.unflatten(-2, (tokens, x.shape[-2] // tokens))


def blended_after(
    targets: Tensor, keys: Tensor, log_decay: Tensor, mix: Tensor, *, rows: int
) -> Tensor:
    """Compute (x_t·k_s) under a mixing matrix of each channel, [..., K, C, C]."""
    left, right = _by_token(targets, log_decay), _by_token(keys, log_decay)
    scores = torch.einsum("...tak,...sbk,...kts->...tasb", left, right, mix)
    return scores.flatten(-4, -3).flatten(-2, -1)


def blended_before(
    targets: Tensor, keys: Tensor, log_decay: Tensor, mix: Tensor, *, rows: int
) -> Tensor:
    """Compute (x_t·k_s) under the mixing matrix of the row before t, of each channel."""
    return blended_after(targets, keys, log_decay, chunks.delayed_rows(mix, 0.0), rows=rows)


def blended_carry(log_decay: Tensor, fade: Tensor) -> Tensor:
    """Compute what the carried S adds to A by channel: [..., C, K], [..., C] → [..., C, K]."""
    return torch.einsum("...kts,...s->...tk", chunks.segments(log_decay.mT), fade)


def blended_remain(mix: Tensor) -> Tensor:
    """Return what is left of each row at the chunk's end: [..., K, C, C] → [..., C, K]."""
    return mix[..., -1, :].mT


def running_maximum(log_decay: Tensor, log_rate: Tensor, start: Tensor) -> Tensor:
    """Compute m_t = max(log decay_t + m_{t−1}, log rate_t): [..., C] twice, [...] → [..., C]."""
    weights = log_mix(log_decay, log_rate).amax(-1)
    return torch.maximum(weights, log_decay.cumsum(-1) + start[..., None])


def stable_mix(log_decay: Tensor, log_rate: Tensor, m: Tensor) -> Tensor:
    """Compute exp(Σ log decays + log rate_s − m_t) for s ≤ t, zero elsewhere."""
    return torch.exp(log_mix(log_decay, log_rate) - m[..., None])


def log_mix(log_decay: Tensor, log_rate: Tensor) -> Tensor:
    """Compute Σ_{s<i≤t} log decays + log rate_s, −∞ for s > t: [..., C] twice → [..., C, C]."""
    size = log_decay.shape[-1]
    ones = torch.ones(size, size, dtype=torch.bool, device=log_decay.device)
    steps = log_decay[..., :, None].expand(*log_decay.shape, size)
    sums = steps.masked_fill(~ones.tril(-1), 0.0).cumsum(-2) + log_rate[..., None, :]
    return sums.masked_fill(~ones.tril(), -torch.inf)


def stable_reach(log_decay: Tensor, start: Tensor, m: Tensor) -> Tensor:
    """Compute exp(Σ log decays + m_0 − m_t): what is left of the state before, in the new units."""
    return torch.exp(log_decay.cumsum(-1) + start[..., None] - m)


def normal_cdf(x: Tensor) -> Tensor:
    """Compute Φ(x), exact far out on both sides."""
    return 0.5 * torch.erfc(x * -(0.5**0.5))


def layer_norm(z: Tensor) -> Tensor:
    """Compute LayerNorm without affine over the last axis, ε = 1e-5."""
    over = excess(z)
    z = z if over is None else z / over
    return torch.nn.functional.layer_norm(z, z.shape[-1:], eps=1e-5)


def excess(z: Tensor) -> Tensor | None:
    """Return by how much rows pass ``VAST``, at least 1: their squares would be no numbers of
    float32, and a LayerNorm of what is that far above ε is the same of any share of it.

    None where the host may look, and none does.
    """
    sizes = z.detach().abs().amax(-1, keepdim=True)
    if sizes.device.type == "cpu" and host_reads() and not (sizes > VAST).any():
        return None
    return (sizes / VAST).clamp_min(1.0)


def layer_norm_vjp(grad: Tensor, z: Tensor) -> Tensor:
    """Compute the gradient of LayerNorm: (g − mean g − ẑ mean(g ẑ)) / σ."""
    over = excess(z)
    z = z if over is None else z / over
    if transformed() or torch.compiler.is_compiling():
        found = _pulled(grad, z)
    else:
        found = _Pulled.apply(grad, z)
    return found if over is None else found / over


def _pulled(grad: Tensor, z: Tensor) -> Tensor:
    centred = z - z.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
    unit = centred * scale
    inner = grad - grad.mean(-1, keepdim=True) - unit * (grad * unit).mean(-1, keepdim=True)
    return inner * scale


def _pulled_at_once(grad: Tensor, z: Tensor) -> Tensor:
    """Compute LayerNorm's gradient by torch's own operations, whose second gradient is wrong."""
    shape, aten = z.shape[-1:], torch.ops.aten
    _, mean, scale = aten.native_layer_norm(z, shape, None, None, 1e-5)
    asked = [True, False, False]
    found: Tensor = aten.native_layer_norm_backward(grad, z, shape, mean, scale, None, None, asked)[
        0
    ]
    return found


class _Pulled(torch.autograd.Function):
    """LayerNorm's gradient in two operations, and its own in one where none is taken of that."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, z: Tensor) -> Tensor:
        ctx.save_for_backward(grad, z)
        return _pulled_at_once(grad, z)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        grad, z = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _pulled(grads[0], z), layer_norm_bend(grads[0], grad, z)
        with torch.enable_grad():
            leaves = grad.detach().requires_grad_(), z.detach().requires_grad_()
            return torch.autograd.grad(_pulled_at_once(*leaves), leaves, grads[0])


def layer_norm_bend(d: Tensor, grad: Tensor, z: Tensor) -> Tensor:
    """Compute ∂(dᵀ J(z) g)/∂z for the Jacobian J of LayerNorm, over the last axis.

    With u = LN(z), σ its scale, ḡ and d̄ without their means, a = mean(g u) and b = mean(d u):
    −(u (mean(ḡ d̄) − 3 a b) + b ḡ + a d̄) / σ².
    """
    over = excess(z)
    z = z if over is None else z / over
    centred = z - z.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
    unit = centred * scale
    scale = scale if over is None else scale / over
    g, d = grad - grad.mean(-1, keepdim=True), d - d.mean(-1, keepdim=True)
    a, b = (g * unit).mean(-1, keepdim=True), (d * unit).mean(-1, keepdim=True)
    return -(unit * ((g * d).mean(-1, keepdim=True) - 3 * a * b) + b * g + a * d) * scale**2


def last_of(x: Tensor) -> Tensor:
    """Return the last row's matrix: [..., C, V, K] → [..., V, K]."""
    return x[..., -1, :, :]


def replaced_last(y: Tensor, last: Tensor) -> Tensor:
    """Return y [..., C, V] with its last row replaced."""
    return torch.cat([y[..., :-1, :], last[..., None, :]], -2)


def accumulate_states(weights: Tensor, states: Tensor) -> Tensor:
    """Compute Σ_s weights_ts X_s: [..., C, C], [..., C, V, K] → [..., C, V, K]."""
    return (weights @ states.flatten(-2)).unflatten(-1, states.shape[-2:])


def faded_states(log_decay: Tensor, states: Tensor) -> Tensor:
    """Compute Σ_{s≤t} X_s ∘ Π_{s<i≤t} decay_i: [..., C, K], [..., C, V, K] → [..., C, V, K]."""
    return torch.einsum("...kts,...svk->...tvk", chunks.segments(log_decay.mT), states)


def turned(x: Tensor, angle: Tensor) -> Tensor:
    """Return [x cos Ω, x sin Ω]: a complex decay's cumulative rotation, as twice the features."""
    return torch.cat([x * torch.cos(angle), x * torch.sin(angle)], -1)
