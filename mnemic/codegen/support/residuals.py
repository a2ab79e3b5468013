"""The residuals of a chunk as the root of ŷ = base + L u(ŷ), differentiable by its adjoint."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import chunks

Function = Callable[..., Tensor]
Solver = Callable[..., Tensor]


class _Adjoint(torch.autograd.Function):
    """Passes ŷ on, and solves the transposed system on the way back.

    With ŷ = base + L e(ŷ) and J = ∂e/∂ŷ, the gradient at the right-hand side is
    g + Jᵀ m, where m = Lᵀ(g + Jᵀ m) is a system of the same shape with time reversed.
    """

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, mixing: Tensor, adjoint: Any, solver: Any, *rows: Tensor
    ) -> Tensor:
        ctx.save_for_backward(y, mixing, *rows)
        ctx.adjoint, ctx.solver = adjoint, solver
        return y.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        y, mixing, *rows = ctx.saved_tensors
        found = _transposed(grads[0], y, mixing, rows, ctx.adjoint, ctx.solver)
        return found, None, None, None, *(None for _ in rows)


def _transposed(
    grad: Tensor, y: Tensor, mixing: Tensor, rows: Sequence[Tensor], adjoint: Function,
    solver: Solver,
) -> Tensor:  # fmt: skip
    """g + Jᵀ m, where m = Lᵀ(g + Jᵀ m)."""
    transposed = mixing.mT.flip(-1, -2)
    linear = _Rows(adjoint, [x.flip(-2) for x in (y, *rows)])
    m = solver(transposed, transposed @ grad.flip(-2), linear).flip(-2)
    return grad + adjoint(m, y, *rows)


class _Rows:
    """An elementwise function of rows that can be taken on one row alone."""

    def __init__(self, function: Function, rows: list[Tensor]) -> None:
        self.function, self.rows = function, rows

    def __call__(self, y: Tensor) -> Tensor:
        return self.function(y, *self.rows)

    def row(self, y: Tensor, index: int) -> Tensor:
        """The function at row ``index``, y being that row."""
        return self.function(y, *(x[..., index : index + 1, :] for x in self.rows))


SOLVERS: dict[str, Solver] = {"sweeps": chunks.sweeps, "substitution": chunks.substitution}


def residual(
    mixing: Tensor, base: Tensor, *rows: Tensor, error: Function, adjoint: Function, solver: str
) -> Tensor:
    """The root ŷ of ŷ = base + L e(ŷ; rows), L strictly lower triangular.

    ``mixing`` [..., C, C], ``base`` [..., C, V], ``rows`` what e reads beside ŷ, each [..., C, ·];
    ``error`` is e, ``adjoint`` its transposed Jacobian; ``solver`` is ``sweeps`` (bounded slopes)
    or ``substitution``. Exact up to rounding; differentiable once in every argument.
    """
    solve = SOLVERS[solver]
    with torch.no_grad():
        y = solve(mixing, base, _Rows(error, list(rows)))
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in (mixing, base, *rows))):
        return y
    following = base + mixing @ error(y, *rows)
    fixed = [x.detach() for x in rows]
    return _Adjoint.apply(following, mixing.detach(), adjoint, solve, *fixed)


def residual_vjp(
    grad: Tensor, y: Tensor, mixing: Tensor, *rows: Tensor, adjoint: Function, solver: str
) -> Tensor:  # fmt: skip
    """The gradient at ``base`` of the root ŷ of ŷ = base + L e(ŷ; rows), [..., C, V].

    It solves the transposed system g = grad + Jᵀ Lᵀ g, J = ∂e/∂ŷ at the root.
    """
    return _transposed(grad, y, mixing, rows, adjoint, SOLVERS[solver])
