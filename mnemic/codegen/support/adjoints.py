"""What gradients need beside the forms' own functions: sums along rows, rows moved back.

Shapes are given by their trailing axes; any batch may stand before them. C is the chunk.
"""

import torch
from torch import Tensor

from .chunks import delayed_rows

# -- sums ------------------------------------------------------------------------------------


def between(x: Tensor) -> Tensor:
    """Σ_{t ≥ i > s} x_ts: [..., C, C] → [..., C]."""
    return x.tril(-1).flip(-2).cumsum(-2).flip(-2).tril(-1).sum(-1)


def later_rows(x: Tensor) -> Tensor:
    """Σ_{t ≥ i} x_t: [..., C, K] → [..., C, K]."""
    return x.flip(-2).cumsum(-2).flip(-2)


def later_sums(x: Tensor) -> Tensor:
    """Σ_{t ≥ i} x_t: [..., C] → [..., C]."""
    return x.flip(-1).cumsum(-1).flip(-1)


def earlier_rows(x: Tensor) -> Tensor:
    """Σ_{s < i} x_s: [..., C, K] → [..., C, K]."""
    return delayed_rows(x.cumsum(-2), 0.0)


def earlier_sums(x: Tensor) -> Tensor:
    """Σ_{s < i} x_s: [..., C] → [..., C]."""
    return earlier_rows(x[..., None])[..., 0]


def as_rows(x: Tensor, like: Tensor) -> Tensor:
    """The same vector for every row: [..., K] → [..., C, K]."""
    return x[..., None, :].expand(like.shape)


def total_states(x: Tensor) -> Tensor:
    """Σ over rows of matrices: [..., C, V, K] → [..., V, K]."""
    return x.sum(-3)


# -- rows moved back -------------------------------------------------------------------------


def advanced_rows(x: Tensor) -> Tensor:
    """The next row, zero for the last: [..., C, K] → [..., C, K]."""
    return torch.cat([x[..., 1:, :], torch.zeros_like(x[..., :1, :])], -2)


def advanced(x: Tensor) -> Tensor:
    """The next row's value, zero for the last: [..., C] → [..., C]."""
    return torch.cat([x[..., 1:], torch.zeros_like(x[..., :1])], -1)


def at_last_row(x: Tensor, like: Tensor) -> Tensor:
    """A vector as the last of so many rows, zero before: [..., K] → [..., C, K]."""
    return torch.cat([torch.zeros_like(like[..., 1:, :]), x[..., None, :]], -2)


def at_last(x: Tensor, like: Tensor) -> Tensor:
    """A number as the last of so many rows, zero before: [...] → [..., C]."""
    return torch.cat([torch.zeros_like(like[..., 1:]), x[..., None]], -1)


# -- second derivatives ----------------------------------------------------------------------


def layer_norm_bend(d: Tensor, grad: Tensor, z: Tensor) -> Tensor:
    """∂(dᵀ J(z) g)/∂z for the Jacobian J of LayerNorm, over the last axis.

    With u = LN(z), σ its scale, ḡ and d̄ without their means, a = mean(g u) and b = mean(d u):
    −(u (mean(ḡ d̄) − 3 a b) + b ḡ + a d̄) / σ².
    """
    centred = z - z.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
    unit = centred * scale
    g, d = grad - grad.mean(-1, keepdim=True), d - d.mean(-1, keepdim=True)
    a, b = (g * unit).mean(-1, keepdim=True), (d * unit).mean(-1, keepdim=True)
    return -(unit * ((g * d).mean(-1, keepdim=True) - 3 * a * b) + b * g + a * d) * scale**2
