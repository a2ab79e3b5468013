"""Conjugate gradients for one small system a row, (Σ w (k − k̄)(k − k̄)ᵀ + λ I) x = b.

The gradient goes through the solution by the implicit function theorem: with r = b − A x at a fixed
x, dx = A⁻¹ dr, so the backward pass is one more solve with the same system.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ROUNDINGS = 10.0
"""A tolerance below this many roundings of the dtype can not be met."""

EVERY = 4
"""Iterations between two looks at the residual, which a device has to be asked for."""

_told: set[str] = set()


class NotConverged(UserWarning):
    """Conjugate gradients stopped above their tolerance."""


@dataclass(frozen=True)
class LinearSystem:
    """A of every row, by what it does: weights [M, R, n], keys [M, n, K], centre [M, R, K]."""

    weights: Tensor
    keys: Tensor
    centre: Tensor
    ridge: Tensor

    def along(self, x: Tensor) -> Tensor:
        """w ∘ (k − k̄)·x: [M, R, K] → [M, R, n]."""
        return self.weights * (x @ self.keys.mT - (x * self.centre).sum(-1, keepdim=True))

    def __call__(self, x: Tensor) -> Tensor:
        """A x."""
        along = self.along(x)
        moment = along @ self.keys - along.sum(-1, keepdim=True) * self.centre
        return moment + self.ridge[..., None] * x

    def detached(self) -> "LinearSystem":
        """The same system as numbers alone."""
        return LinearSystem(*(x.detach() for x in vars(self).values()))


def conjugate_gradients(
    system: LinearSystem, target: Tensor, iterations: int, tolerance: float
) -> Tensor:
    """x with ‖b − A x‖ ≤ tolerance ‖b‖ in every row, or what is reached, with a warning once."""
    tolerance = max(tolerance, ROUNDINGS * torch.finfo(target.dtype).eps)
    x, residual = torch.zeros_like(target), target
    direction, size = residual, (residual * residual).sum(-1, keepdim=True)
    least = size * tolerance**2
    for step in range(iterations):
        if step % EVERY == 0 and bool((size <= least).all()):
            return x
        image = system(direction)
        curve = (direction * image).sum(-1, keepdim=True)
        length = torch.where(curve > 0, size / torch.where(curve > 0, curve, 1.0), 0.0)
        x = x + length * direction
        residual = residual - length * image
        following = (residual * residual).sum(-1, keepdim=True)
        turn = torch.where(size > 0, following / torch.where(size > 0, size, 1.0), 0.0)
        direction, size = residual + turn * direction, following
    _tell(size, target, iterations, tolerance)
    return x


def _tell(size: Tensor, target: Tensor, iterations: int, tolerance: float) -> None:
    """Warn, once a process, where the tolerance was not met."""
    whole = (target * target).sum(-1, keepdim=True)
    left = torch.where(whole > 0, size / torch.where(whole > 0, whole, 1.0), 0.0)
    worst = float(left.max()) ** 0.5 if left.numel() else 0.0
    if worst > tolerance and "conjugate gradients" not in _told:
        _told.add("conjugate gradients")
        warnings.warn(
            f"conjugate gradients stopped after {iterations} iterations at a relative residual of "
            f"{worst:.1e}, above the tolerance {tolerance:.1e}: raise optimizer.solver.iterations "
            "or the ridge",
            NotConverged,
            stacklevel=2,
        )


class _Solution(torch.autograd.Function):
    """x as it was found; its gradient solves the system once more."""

    @staticmethod
    def forward(
        ctx: Any, residual: Tensor, x: Tensor, weights: Tensor, keys: Tensor, centre: Tensor,
        ridge: Tensor, iterations: int, tolerance: float,
    ) -> Tensor:  # fmt: skip
        """x."""
        ctx.save_for_backward(weights, keys, centre, ridge)
        ctx.limits = (iterations, tolerance)
        return x.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """A⁻¹ grad, for the residual."""
        system = LinearSystem(*ctx.saved_tensors)
        found = conjugate_gradients(system, grad, *ctx.limits)
        return (found, *[None] * 7)


def solve_rows(system: LinearSystem, target: Tensor, iterations: int, tolerance: float) -> Tensor:
    """x = A⁻¹ b, differentiable in everything that A and b are made of."""
    with torch.no_grad():
        numbers = system.detached()
        x = conjugate_gradients(numbers, target.detach(), iterations, tolerance)
    if not torch.is_grad_enabled():
        return x
    residual = target - system(x)
    found: Tensor = _Solution.apply(
        residual, x, numbers.weights, numbers.keys, numbers.centre, numbers.ridge, iterations,
        tolerance,
    )  # fmt: skip
    return found
