"""The residuals of a chunk as the root of ŷ = base + L e(ŷ), with derivatives of any order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .chunks import substitution
from .once import recorded, replayed
from .transforms import pushed

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class _Signal:
    """e and its transposed Jacobian Jᵀ, J = ∂e/∂ŷ, which is symmetric as the Hessian of a loss."""

    error: Function
    adjoint: Function
    affine: bool = False
    """Whether e is affine in ŷ, so that no root in it depends on ŷ."""


def _driven(adjoint: Function) -> _Signal:
    """Return the map m ↦ d + Jᵀ m as a signal, which reads d and ŷ as two more rows."""
    return _Signal(
        lambda m, d, *rows: d + adjoint(m, *rows), lambda g, _, __, *rows: adjoint(g, *rows),
        affine=True,
    )  # fmt: skip


class _Root(torch.autograd.Function):
    """ŷ = base + L e(ŷ; rows); its derivatives solve linear systems of the same shape.

    With g = d + Jᵀ Lᵀ g the gradient is g at base, g e(ŷ)ᵀ at L, and (∂e/∂rows)ᵀ Lᵀ g at the rows.
    All of it is made of operations that have derivatives, this one among them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(signal: _Signal, mixing: Tensor, base: Tensor, *rows: Tensor) -> Tensor:
        kind = _AffineRows if signal.affine else _Rows
        return substitution(mixing, base, kind(signal.error, rows))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        signal, mixing, _, *rows = inputs
        ctx.signal = signal
        ctx.save_for_backward(output, mixing, *rows)
        ctx.save_for_forward(output, mixing, *rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        y, mixing, *rows = ctx.saved_tensors
        signal: _Signal = ctx.signal
        _, of_mixing, _, *of_rows = ctx.needs_input_grad
        m = _back(grads[0], y, mixing, rows, signal.adjoint)
        d_base = grads[0] + signal.adjoint(m, y, *rows)
        d_mixing = d_base @ signal.error(y, *rows).mT if of_mixing else None
        d_rows = [None] * len(rows)
        if any(of_rows):
            d_rows = torch.func.vjp(lambda *x: signal.error(y, *x), *rows)[1](m)
        return None, d_mixing, d_base, *d_rows

    @staticmethod
    def jvp(ctx: Any, _: None, d_mixing: Any, d_base: Any, *d_rows: Any) -> Tensor:
        y, mixing, *rows = ctx.saved_tensors
        signal: _Signal = ctx.signal
        start = torch.zeros_like(y) if d_base is None else d_base
        if d_mixing is not None:
            start = start + d_mixing @ signal.error(y, *rows)
        driven = torch.zeros_like(y)
        if any(d is not None for d in d_rows):
            pairs = zip(rows, d_rows, strict=True)
            moved = tuple(torch.zeros_like(x) if d is None else d for x, d in pairs)
            driven = pushed(lambda *x: signal.error(y, *x), rows, moved)
        return _solved(_driven(signal.adjoint), mixing, start, driven, y, *rows)


def _back(
    grad: Tensor, y: Tensor, mixing: Tensor, rows: Sequence[Tensor], adjoint: Function
) -> Tensor:  # fmt: skip
    """Solve m = Lᵀ(grad + Jᵀ m): the system of the root with time reversed.

    Lᵀ grad is not made first: where a later step undoes an earlier one it is much larger than m.
    """
    transposed = mixing.mT.flip(-1, -2)
    flipped = [x.flip(-2) for x in (grad, y, *rows)]
    return _solved(_driven(adjoint), transposed, torch.zeros_like(grad), *flipped).flip(-2)


def _solved(signal: _Signal, mixing: Tensor, base: Tensor, *rows: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # which takes no derivative along a direction by hand
        return substitution(mixing, base, _Rows(signal.error, rows))
    found: Tensor = _Root.apply(signal, mixing, base, *rows)
    return found


class _Rows:
    """An elementwise function of rows that can be taken on one row alone."""

    def __init__(self, function: Function, rows: Sequence[Tensor]) -> None:
        self.function, self.rows = function, rows
        self.parts = [x.split(1, -2) for x in rows]

    def __call__(self, y: Tensor) -> Tensor:
        return self.function(y, *self.rows)

    def row(self, y: Tensor, index: int) -> Tensor:
        """Return the function at row ``index``, y being that row."""
        return self.function(y, *(parts[index] for parts in self.parts))


class _AffineRows(_Rows):
    """An elementwise function of rows, affine in its argument: roots in it are found for all rows
    at once."""

    def __init__(self, function: Function, rows: Sequence[Tensor]) -> None:
        super().__init__(function, rows)
        with recorded() as self.roots:
            function(torch.zeros_like(rows[0]), *rows)

    def row(self, y: Tensor, index: int) -> Tensor:
        with replayed(self.roots, index):
            return super().row(y, index)


def residual(
    mixing: Tensor, base: Tensor, *rows: Tensor, error: Function, adjoint: Function
) -> Tensor:  # fmt: skip
    """Solve ŷ = base + L e(ŷ; rows) for ŷ, L strictly lower triangular.

    ``mixing`` [..., C, C], ``base`` [..., C, V], ``rows`` what e reads beside ŷ, each [..., C, ·];
    ``error`` is e, ``adjoint`` its transposed Jacobian, which is symmetric. Found row after row,
    so that it is as exact as e is, for any e; differentiable in every argument as often as e is.
    """
    return _solved(_Signal(error, adjoint), mixing, base, *rows)


def residual_vjp(
    grad: Tensor, y: Tensor, mixing: Tensor, *rows: Tensor, adjoint: Function
) -> Tensor:  # fmt: skip
    """Return the gradient at ``base`` of the root ŷ of ŷ = base + L e(ŷ; rows), [..., C, V].

    It solves the transposed system g = grad + Jᵀ Lᵀ g, J = ∂e/∂ŷ at the root.
    """
    return grad + adjoint(_back(grad, y, mixing, rows, adjoint), y, *rows)
