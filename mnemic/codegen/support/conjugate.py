"""A chunk's regressions (H_t + Λ_t) x_t = q_t, solved all at once.

The matrix of row t is H_t = reach_t H_0 + Σ_{s≤t} weights_ts k_s k_sᵀ, which conjugate gradients
only ever multiply. Shapes: q, keys and the ridge [..., C, K], weights [..., C, C] (zero for
s > t), reach [..., C], H_0 [..., K, K], symmetric.
"""

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from .definite import Forgotten, cholesky
from .folder import PACKAGE
from .transforms import host_reads, pushed
from .verified import digest

ROUNDINGS = 8
"""A tolerance below this many roundings of the dtype asks for that."""

MOVED = 0.05
"""How much of a direct solution a rounding of its matrix may move, before it is told as lost."""

OWN = ("torch", "mnemic", PACKAGE)
"""Packages whose code is no call site of a user's."""

told: set[tuple[str, int]] = set()
"""Call sites that have been warned."""


class ToleranceNotMet(RuntimeWarning):
    """Conjugate gradients stopped at their cap before they met the tolerance."""


@dataclass(frozen=True)
class Matrices:
    """The matrices H_t + Λ_t of a chunk's rows, as what they are made of."""

    key: Tensor
    weights: Tensor
    h: Tensor
    ridge: Tensor
    reach: Tensor

    def times(self, x: Tensor) -> Tensor:
        """Compute (H_t + Λ_t) x_t for every row."""
        new = (self.weights * (x @ self.key.mT)) @ self.key
        return self.reach[..., None] * (x @ self.h) + new + self.ridge * x

    def diagonal(self) -> Tensor:
        """Return the diagonals as rows, one where they are not above zero."""
        old = self.h.diagonal(dim1=-2, dim2=-1)[..., None, :]
        found = self.reach[..., None] * old + self.weights @ self.key.square() + self.ridge
        return torch.where(found > 0, found, 1.0)

    def pulled(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of Σ_t y_tᵀ(H_t + Λ_t) x_t at every part."""
        seen, answer = x @ self.key.mT, y @ self.key.mT
        of_key = (self.weights * answer).mT @ x + (self.weights * seen).mT @ y
        left = self.reach[..., None] * y
        of_h = (left.mT @ x + x.mT @ left) / 2
        of_reach = ((x @ self.h) * y).sum(-1)
        return of_key, (answer * seen).tril(), of_h, x * y, of_reach


class System(Protocol):
    """A symmetric positive definite matrix a row, by what it does."""

    def times(self, x: Tensor) -> Tensor:
        """Compute A x for every row."""

    def diagonal(self) -> Tensor:
        """Return the diagonals as rows, above zero."""


class _Solution(torch.autograd.Function):
    """x = (H + Λ)⁻¹ q; its gradient solves the same system once more.

    With g = (H + Λ)⁻¹ ∂L/∂x the gradient is g at q and −gᵀ(∂(H + Λ)) x at the matrix.
    """

    @staticmethod
    def forward(
        options: tuple[float, int], q: Tensor, key: Tensor, weights: Tensor, h: Tensor,
        ridge: Tensor, reach: Tensor,
    ) -> Tensor:  # fmt: skip
        parts = (key, weights, h, ridge, reach)
        if torch.compiler.is_compiling():
            found: Tensor = _OPAQUE(q, list(parts), *options)
            return found
        return solved(Matrices(*parts), q, *options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        options, _, *parts = inputs
        ctx.save_for_backward(output, *parts)
        ctx.save_for_forward(output, *parts)
        ctx.options = options

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, *parts = ctx.saved_tensors
        g: Tensor = _Solution.apply(ctx.options, grads[0], *parts)
        return None, g, *(-z for z in Matrices(*parts).pulled(x, g))

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], options: Any, *given: Tensor) -> tuple[Tensor, int]:
        """Solve with one more axis in front: rows are solved by themselves wherever they stand."""
        wide = [
            x.expand(info.batch_size, *x.shape) if d is None else x.movedim(d, 0)
            for x, d in zip(given, dims[1:], strict=True)
        ]
        return _Solution.apply(options, *wide), 0


class _Along(_Solution):
    """x = (H + Λ)⁻¹ q with its derivative along a direction, which torch.compile does not take.

    (H + Λ) x = q along a direction: (H + Λ) ẋ = q̇ − (Ḣ + Λ̇) x.
    """

    @staticmethod
    def jvp(ctx: Any, _: None, d_q: Tensor | None, *d_parts: Tensor | None) -> Tensor:
        x, *parts = ctx.saved_tensors
        start = torch.zeros_like(x) if d_q is None else d_q
        pairs = zip(parts, d_parts, strict=True)
        moved = tuple(torch.zeros_like(p) if d is None else d for p, d in pairs)
        start = start - pushed(lambda *given: Matrices(*given).times(x), parts, moved)
        found: Tensor = _Along.apply(ctx.options, start, *parts)
        return found


def conjugated(
    q: Tensor, key: Tensor, weights: Tensor, h: Tensor, ridge: Tensor, reach: Tensor, *,
    tolerance: float, iterations: int,
) -> Tensor:  # fmt: skip
    """Compute (H_t + Λ_t)⁻¹ q_t for every row, [..., C, K], by conjugate gradients.

    Rows are done when ‖q_t − (H_t + Λ_t) x_t‖ ≤ tolerance ‖q_t‖. Warns ``ToleranceNotMet``, once
    for each line of the caller's, when some are not after ``iterations``.
    """
    solution = _Solution if torch.compiler.is_compiling() else _Along
    x: Tensor = solution.apply((tolerance, iterations), q, key, weights, h, ridge, reach)
    return x


def cholesky_rows(
    q: Tensor, key: Tensor, weights: Tensor, h: Tensor, ridge: Tensor, reach: Tensor
) -> Tensor:  # fmt: skip
    """Compute (H_t + Λ_t)⁻¹ q_t for every row by Cholesky factors of the matrices, all formed."""
    new = (weights[..., None] * key[..., None, :, :]).mT @ key[..., None, :, :]
    old = reach[..., None, None] * h[..., None, :, :]
    return ridge_solved(old + new, ridge, q)


def ridge_solved(h: Tensor, ridge: Tensor, q: Tensor) -> Tensor:
    """Compute (H + Diag(ridge))⁻¹ q by a Cholesky factor: [..., K, K], two [..., K] → [..., K].

    Raises ``Forgotten`` where there is none, or where the factor is one of noise: a rounding of the
    matrix's entries would move what is solved by more than ``MOVED`` of it.
    """
    matrix = h + torch.diag_embed(ridge)
    factor = cholesky(matrix)
    found = torch.cholesky_solve(q[..., None], factor)
    if host_reads():
        with torch.no_grad():
            rounding = matrix.abs() @ found.abs() * torch.finfo(q.dtype).eps
            moved = torch.cholesky_solve(rounding, factor).abs().amax((-2, -1))
            if not bool((moved <= MOVED * found.abs().amax((-2, -1))).all()):
                raise Forgotten
    return found[..., 0]


# -- the iteration ---------------------------------------------------------------------------


def solved(matrices: System, q: Tensor, tolerance: float, iterations: int) -> Tensor:
    """Solve by conjugate gradients preconditioned by the diagonal; rows that are done stand still.

    Raises ``Forgotten`` where a direction p has pᵀAp ≤ ε K pᵀDp, D the diagonal: then A is singular
    to within rounding, whatever its scale, and a small residual would say nothing about x.
    """
    rounding = ROUNDINGS * torch.finfo(q.dtype).eps
    flat = torch.finfo(q.dtype).eps * q.shape[-1]
    size = torch.linalg.vector_norm(q, dim=-1)
    target = max(tolerance, rounding) * size
    diagonal = matrices.diagonal()
    x, rest = torch.zeros_like(q), q
    along = rest / diagonal
    power, largest = (rest * along).sum(-1), torch.zeros_like(size)
    for _ in range(iterations):
        live = ~(torch.linalg.vector_norm(rest, dim=-1) <= target)
        if not bool(live.any()):
            break
        image = matrices.times(along)
        curvature, length = (along * image).sum(-1), torch.linalg.vector_norm(along, dim=-1)
        if bool((live & (curvature <= flat * (along.square() * diagonal).sum(-1))).any()):
            raise Forgotten
        stretch = torch.linalg.vector_norm(image, dim=-1) / _divisor(length)
        largest = torch.maximum(largest, stretch)
        step = torch.where(live, power / _divisor(curvature), 0.0)[..., None]
        x, rest = x + step * along, rest - step * image
        scaled = rest / diagonal
        following = (rest * scaled).sum(-1)
        along = scaled + (following / _divisor(power))[..., None] * along
        power = following
    left = torch.linalg.vector_norm(q - matrices.times(x), dim=-1)
    reached = rounding * (largest * torch.linalg.vector_norm(x, dim=-1) + size)
    missed = ~(left <= torch.maximum(target, reached))
    if bool(missed.any()):
        worst = float((left / _divisor(size)).max())
        _warn(f"conjugate gradients left a relative residual of {worst:.1e}, above the tolerance "
              f"of {max(tolerance, rounding):.1e}, after {iterations} iterations; raise "
              "optimizer.solver.iterations or the ridge, or use the recurrent form, which "
              "solves directly")  # fmt: skip
    return x


def _divisor(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1.0, x)


def _own(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in OWN)


def _warn(message: str) -> None:
    """Warn at the caller's line, once for each."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _own(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    site = (frame.f_code.co_filename, frame.f_lineno)
    if site not in told:
        told.add(site)
        warnings.warn_explicit(message, ToleranceNotMet, *site)


# -- for torch.compile -----------------------------------------------------------------------

SCHEMA = "(Tensor q, Tensor[] parts, float tolerance, int iterations) -> Tensor"


def opaque(name: str, system: Callable[..., System]) -> Any:
    """Return the solver of a kind of system as an operator of torch.

    It is one node of a graph, whose loop is read by the host.
    """
    name, space = f"{name}_{digest()[:16]}", "mnemic"
    if not hasattr(torch.ops.mnemic, name):
        library = torch.library.Library(space, "FRAGMENT")
        _libraries.append(library)
        library.define(name + SCHEMA)
        library.impl(name, partial(_of_list, system), "CompositeExplicitAutograd")
        torch.library.register_fake(f"{space}::{name}", _fake, lib=library)
    return getattr(torch.ops.mnemic, name).default


def _of_list(
    system: Callable[..., System], q: Tensor, parts: list[Tensor], tolerance: float, iterations: int
) -> Tensor:
    return solved(system(*parts), q, tolerance, iterations).contiguous()


def _fake(q: Tensor, parts: list[Tensor], tolerance: float, iterations: int) -> Tensor:
    return q.new_empty(q.shape)


_libraries: list[torch.library.Library] = []
"""Operators live as long as their library."""

_OPAQUE = opaque("conjugated", Matrices)
