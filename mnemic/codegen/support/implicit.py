"""The error at a new prediction: s = e(ŷ − c s) entry by entry, for an e that never falls."""

from collections.abc import Callable

import torch
from torch import Tensor

from .once import root
from .roots import falling_root

ENDLESS = 1e30
"""Stands for the slope of a jump."""

POLISHED = 2
"""Newton steps from the root, each of which makes one more derivative right."""


def new_error(
    y: Tensor, c: Tensor, *rest: Tensor,
    error: Callable[..., Tensor], slope: Callable[..., Tensor], jumps: bool,
) -> Tensor:  # fmt: skip
    """Return the root s of s = e(ŷ − c s; rest), all arguments broadcast, c ≥ 0.

    It lies between 0 and e(ŷ), for the new prediction is nearer to the minimum. Differentiable
    twice; where e ``jumps`` over s the new prediction stays at the jump.
    """
    y, c, *others = torch.broadcast_tensors(y, c, *rest)
    with torch.no_grad():
        s = root(lambda: _bracketed(y, c, others, error))
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in (y, c, *others))):
        return s
    with torch.no_grad():
        u = y - c * s
        p = slope(u, *others)
        inside = (
            inside_jump(s, error(u, *others)) if jumps else torch.zeros_like(s, dtype=torch.bool)
        )
    found = s
    for _ in range(POLISHED):
        left = error(y - c * found, *others) - found
        found = found + torch.where(inside, 0.0, left) / (1 + c.detach() * p)
    if not jumps:
        return found
    held = (y - u) / torch.where(inside, c, 1.0)
    return torch.where(inside, held, found)


def _bracketed(
    y: Tensor, c: Tensor, rest: list[Tensor], error: Callable[..., Tensor]
) -> Tensor:  # fmt: skip
    """Solve s = e(ŷ − c s) by size: t − |e(ŷ − c t·sign)| rises from t = 0 to t = |e(ŷ)|."""
    start = error(y, *rest) + torch.zeros_like(y)
    sign = torch.where(start.isnan(), torch.sign(y), torch.sign(start))

    def left(size: Tensor) -> Tensor:
        return sign * error(y - c * sign * size, *rest) - size

    most = start.abs().nan_to_num(nan=torch.inf).clamp_max(torch.finfo(y.dtype).max ** 0.5)
    near = (1 + y.abs()) / c.clamp_min(torch.finfo(y.dtype).tiny ** 0.5)
    most = torch.where((near < most) & (left(near) <= 0), near, most)
    return sign * falling_root(left, torch.zeros_like(y), most)


def inside_jump(s: Tensor, error: Tensor) -> Tensor:
    """Return where the root of s = e lies between the two ends of a jump of e."""
    allowed = torch.finfo(s.dtype).eps ** 0.5
    return (error - s).abs() > allowed * (1 + s.abs())


def steep(s: Tensor, error: Tensor, slope: Tensor) -> Tensor:
    """Return ∂e/∂ŷ at the root, ``ENDLESS`` where it lies inside a jump."""
    return torch.where(inside_jump(s, error), torch.full_like(s, ENDLESS), slope)
