"""The error at a new prediction, evaluated plainly: a bisection and an implicit function."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

HALVINGS: Final = 2200
"""Halvings of a bisection: more than lie between the largest double and the smallest."""

LARGEST: Final = 1e300
INSIDE: Final = 1e-8
"""How far a root of s = e(u) may be off before it counts as lying inside a jump of e."""

ENDLESS: Final = 1e30


def new_error(error: Callable[[Tensor], Tensor], y: Tensor, c: Tensor) -> Tensor:
    """Return the root s of s = e(ŷ − c s) for an e that never falls, with its first gradients.

    s lies between 0 and e(ŷ). Inside a jump of e the new prediction stays where it is.
    """
    with torch.no_grad():
        s = _bisected(error, y, c)
        u = y - c * s
        jump = _inside_jump(s, error(u))
    with torch.enable_grad():
        point = u.detach().requires_grad_()
        (p,) = torch.autograd.grad(error(point).sum(), point)
    left = torch.where(jump, 0.0, error(y - c * s) - s)
    return torch.where(jump, (y - u) / torch.where(jump, c, 1.0), s + left / (1 + c.detach() * p))


def _bisected(error: Callable[[Tensor], Tensor], y: Tensor, c: Tensor) -> Tensor:
    start = error(y)
    low, high = start.clamp(-LARGEST, 0.0), start.clamp(0.0, LARGEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if bool(((middle == low) | (middle == high)).all()):  # no number is between them
            break
        over = middle > error(y - c * middle)
        low, high = torch.where(over, low, middle), torch.where(over, middle, high)
    return (low + high) / 2


def slope_at(s: Tensor, error: Tensor, slope: Tensor) -> Tensor:
    """Return ∂e/∂ŷ at a root, endless inside a jump."""
    return torch.where(_inside_jump(s, error), ENDLESS, slope)


def _inside_jump(s: Tensor, error: Tensor) -> Tensor:
    return (error - s).abs() > INSIDE * (1 + s.abs())
