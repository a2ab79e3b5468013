"""Kernel regression over kept pairs by one Cholesky factor that grows with them.

L Lᵀ = κ(K, K) + ridge·I. The leading blocks of L factor the kernel matrices of all prefixes, so one
factor serves every token: y_t = (L⁻¹V)_{≤t}ᵀ (L⁻¹ κ(K, q_t))_{≤t}.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.linalg import solve_triangular

from .kept_attention import squares
from .pickled import Pickled

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]


class NotPositive(Pickled, ValueError):
    """The kernel matrix of the keys, with its ridge, is not positive definite."""

    def __init__(self) -> None:
        super().__init__(
            "the kernel matrix of the kept keys plus the ridge is not positive definite: keys "
            "repeat, or nearly so, under a ridge near 0, or the kernel is no positive definite "
            "one; raise memory.ridge"
        )


def kernel_rows(x: Tensor, keys: Tensor, *, similarity: Kernel) -> Tensor:
    """Compute κ(k_i, x_t): [M, C, K], [M, n, K] → [M, C, n]."""
    kq = x @ keys.mT
    return similarity(kq, squares(keys)[..., None, :], squares(x)[..., None]).expand(kq.shape)


def kernel_row(x: Tensor, keys: Tensor, *, similarity: Kernel) -> Tensor:
    """Compute κ(k_i, x): [M, K], [M, n, K] → [M, n]."""
    return kernel_rows(x[..., None, :], keys, similarity=similarity)[..., 0, :]


def kernel_self(x: Tensor, *, similarity: Kernel, ridge: float) -> Tensor:
    """Compute κ(x, x) + ridge: [M, K] → [M]."""
    size = squares(x)
    return similarity(size, size, size) + ridge


def half_solved(factor: Tensor, x: Tensor) -> Tensor:
    """Compute L⁻¹ x: [M, n, n], [M, n] → [M, n]."""
    return solve_triangular(factor, x[..., None], upper=False)[..., 0]


def half_solved_rows(factor: Tensor, x: Tensor) -> Tensor:
    """Compute L⁻¹ x for every row x: [M, n, n], [M, C, n] → [M, C, n]."""
    return solve_triangular(factor, x.mT, upper=False).mT


def pivot(own: Tensor, border: Tensor) -> Tensor:
    """Compute the last diagonal entry of the factor, √(κ(k, k) + ridge − ‖border‖²).

    Raises ``NotPositive`` where there is none.
    """
    rest = own - squares(border)
    if not bool((rest > noise(own, border.shape[-1] + 1)).all()):
        raise NotPositive
    return torch.sqrt(rest)


def noise(size: Tensor, rows: int) -> Tensor:
    """Return what rounding may make of a pivot that is zero and began as ``size``, in a factor of
    so many rows: as much as LAPACK's pivoted factor (pstrf) takes for it."""
    return size * (rows * torch.finfo(size.dtype).eps / 2)


def bordered(factor: Tensor, border: Tensor, corner: Tensor) -> Tensor:
    """Return the factor with one more row: [M, n, n], [M, n], [M] → [M, n + 1, n + 1]."""
    row = torch.cat([border, corner[..., None]], -1)[..., None, :]
    wide = torch.cat([factor, torch.zeros_like(factor[..., :, :1])], -1)
    if factor.shape[-1] == 0:
        wide = factor.new_zeros(*factor.shape[:-2], 0, 1)
    return torch.cat([wide, row], -2)


def next_solved(value: Tensor, border: Tensor, solved: Tensor, corner: Tensor) -> Tensor:
    """Compute one more row of L⁻¹V: (v − Σ border_i z_i) / corner."""
    known = (border[..., None, :] @ solved)[..., 0, :]
    return (value - known) / corner[..., None]


def grown_factor(factor: Tensor, cross: Tensor, own: Tensor, *, ridge: float) -> Tensor:
    """Return the factor with a chunk's rows: [M, n, n], [M, C, n], [M, C, C] → [M, n + C, n + C].

    Raises ``NotPositive`` where there is none.
    """
    border = solve_triangular(factor, cross.mT, upper=False).mT
    eye = torch.eye(own.shape[-1], dtype=own.dtype, device=own.device)
    matrix = own + ridge * eye
    corner, failed = torch.linalg.cholesky_ex(matrix - border @ border.mT)
    size = matrix.diagonal(dim1=-2, dim2=-1)
    rest = corner.diagonal(dim1=-2, dim2=-1).square()
    lost = ~(rest > noise(size, cross.shape[-1] + size.shape[-1]))
    if bool((failed > 0).any()) or bool(lost.any()):
        raise NotPositive
    right = torch.zeros_like(cross.mT)
    return torch.cat([torch.cat([factor, right], -1), torch.cat([border, corner], -1)], -2)


def solved_behind(factor: Tensor, solved: Tensor, v: Tensor) -> Tensor:
    """Compute the next C rows of L⁻¹V: [M, n + C, n + C], [M, n, V], [M, C, V] → [M, C, V]."""
    known = solved.shape[-2]
    rest = v - factor[..., known:, :known] @ solved
    return solve_triangular(factor[..., known:, known:], rest, upper=False)


def prefix_reads(x: Tensor, solved: Tensor) -> Tensor:
    """Compute Σ_{i ≤ t} x_ti z_i for the last rows t: [M, C, n], [M, n, V] → [M, C, V]."""
    return x.tril(x.shape[-1] - x.shape[-2]) @ solved
