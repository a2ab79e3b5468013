"""One regression a row, (Σ w (k − k̄)(k − k̄)ᵀ + λ I) x = b, by conjugate gradients.

The gradient goes through the solution by the implicit function theorem: with r = b − A x at a fixed
x, dx = A⁻¹ dr, so the backward pass is one more solve with the same system.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .conjugate import solved


@dataclass(frozen=True)
class Regressions:
    """A of every row: weights [M, R, n], keys [M, n, K], centre [M, R, K], ridge [M, R]."""

    weights: Tensor
    keys: Tensor
    centre: Tensor
    ridge: Tensor

    def along(self, x: Tensor) -> Tensor:
        """w ∘ (k − k̄)·x: [M, R, K] → [M, R, n]."""
        return self.weights * (x @ self.keys.mT - (x * self.centre).sum(-1, keepdim=True))

    def times(self, x: Tensor) -> Tensor:
        """A x."""
        along = self.along(x)
        moment = along @ self.keys - along.sum(-1, keepdim=True) * self.centre
        return moment + self.ridge[..., None] * x

    def diagonal(self) -> Tensor:
        """Σ w (k − k̄)² + λ."""
        total = self.weights.sum(-1, keepdim=True)
        spread = self.weights @ self.keys.square() - total * self.centre.square()
        found = spread.clamp_min(0.0) + self.ridge[..., None]
        return torch.where(found > 0, found, 1.0)

    def detached(self) -> "Regressions":
        """The same as numbers alone."""
        return Regressions(*(x.detach() for x in vars(self).values()))


class _Solution(torch.autograd.Function):
    """x as it was found; its gradient solves the system once more."""

    @staticmethod
    def forward(
        ctx: Any, limits: tuple[float, int], residual: Tensor, x: Tensor, *parts: Tensor
    ) -> Tensor:
        """x."""
        ctx.save_for_backward(*parts)
        ctx.limits = limits
        return x.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """A⁻¹ grad, for the residual."""
        found = solved(Regressions(*ctx.saved_tensors), grad, *ctx.limits)
        return (None, found, *[None] * 5)


def solve_rows(system: Regressions, target: Tensor, iterations: int, tolerance: float) -> Tensor:
    """x = A⁻¹ b, differentiable in everything that A and b are made of.

    Warns ``ToleranceNotMet`` as ``conjugate.conjugated`` does.
    """
    limits = (tolerance, iterations)
    with torch.no_grad():
        numbers = system.detached()
        x = solved(numbers, target.detach(), *limits)
    if not torch.is_grad_enabled():
        return x
    residual = target - system.times(x)
    found: Tensor = _Solution.apply(limits, residual, x, *vars(numbers).values())
    return found
