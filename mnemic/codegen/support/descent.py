"""One regression a row, (Σ w (k − k̄)(k − k̄)ᵀ + λ I) x = b, by conjugate gradients.

The gradient goes through the solution by the implicit function theorem: dx = A⁻¹(db − dA x), so the
backward pass is one more solve with the same system.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .conjugate import opaque, solved


@dataclass(frozen=True)
class Regressions:
    """A of every row: weights [M, R, n], keys [M, n, K], centre [M, R, K], ridge [M, R]."""

    weights: Tensor
    keys: Tensor
    centre: Tensor
    ridge: Tensor

    def along(self, x: Tensor) -> Tensor:
        """Compute w ∘ (k − k̄)·x: [M, R, K] → [M, R, n]."""
        return self.weights * (x @ self.keys.mT - (x * self.centre).sum(-1, keepdim=True))

    def times(self, x: Tensor) -> Tensor:
        """Compute A x for every row."""
        along = self.along(x)
        moment = along @ self.keys - along.sum(-1, keepdim=True) * self.centre
        return moment + self.ridge[..., None] * x

    def diagonal(self) -> Tensor:
        """Compute A's diagonals, Σ w (k − k̄)² + λ, one where they are not above zero."""
        total = self.weights.sum(-1, keepdim=True)
        spread = self.weights @ self.keys.square() - total * self.centre.square()
        found = spread.clamp_min(0.0) + self.ridge[..., None]
        return torch.where(found > 0, found, 1.0)

    def pulled(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of Σ y·A x = Σ w ((k − k̄)·x) ((k − k̄)·y) + λ x·y by part."""
        of_x, of_y = self.along(x), self.along(y)
        seen = x @ self.keys.mT - (x * self.centre).sum(-1, keepdim=True)
        answer = y @ self.keys.mT - (y * self.centre).sum(-1, keepdim=True)
        of_keys = of_y.mT @ x + of_x.mT @ y
        of_centre = -of_y.sum(-1, keepdim=True) * x - of_x.sum(-1, keepdim=True) * y
        return seen * answer, of_keys, of_centre, (x * y).sum(-1)


_OPAQUE = opaque("regressed", Regressions)


class _Solution(torch.autograd.Function):
    """x = A⁻¹ b; with g = A⁻¹ ∂L/∂x the gradient is g at b and −gᵀ(∂A) x at what A is made of."""

    @staticmethod
    def forward(
        limits: tuple[float, int], target: Tensor, weights: Tensor, keys: Tensor, centre: Tensor,
        ridge: Tensor,
    ) -> Tensor:  # fmt: skip
        """Solve A x = b, as one opaque operator while torch compiles."""
        parts = (weights, keys, centre, ridge)
        if torch.compiler.is_compiling():
            found: Tensor = _OPAQUE(target, list(parts), *limits)
            return found
        return solved(Regressions(*parts), target, *limits)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the solution and the system."""
        limits, _, *parts = inputs
        ctx.limits = limits
        ctx.save_for_backward(output, *parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        """Solve once more with the same system, which has derivatives in turn."""
        x, *parts = ctx.saved_tensors
        g: Tensor = _Solution.apply(ctx.limits, grads[0], *parts)
        return None, g, *(-z for z in Regressions(*parts).pulled(x, g))


def solve_rows(system: Regressions, target: Tensor, iterations: int, tolerance: float) -> Tensor:
    """Solve A x = b, differentiable in all that A and b are made of, as often as one likes.

    Warns ``ToleranceNotMet`` as ``conjugate.conjugated`` does.
    """
    parts = (system.weights, system.keys, system.centre, system.ridge)
    found: Tensor = _Solution.apply((tolerance, iterations), target, *parts)
    return found
