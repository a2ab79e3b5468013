"""Newton–Schulz is the iteration as printed, in float32 too, and keeps little for its gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from mnemic.codegen.support import matrices
from mnemic.codegen.support.matrices import QUINTIC, newton_schulz


def as_printed(matrix: Tensor, steps: int) -> Tensor:
    """X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X, step by step."""
    a, b, c = QUINTIC
    x = matrix / (torch.linalg.matrix_norm(matrix, keepdim=True) + 1e-7)
    for _ in range(steps):
        x = a * x + b * x @ x.mT @ x + c * x @ x.mT @ x @ x.mT @ x
    return x


def conditioned(shape: tuple[int, int], least: float) -> Tensor:
    """A matrix with singular values from one down to the ``least``, [4, rows, columns]."""
    draws = torch.Generator().manual_seed(1)
    noise = torch.randn(4, *shape, dtype=torch.float64, generator=draws)
    left, values, right = torch.linalg.svd(noise, full_matrices=False)
    spread = torch.logspace(0, math.log10(least), values.shape[-1], dtype=torch.float64)
    return left * spread @ right


def through(matrix: Tensor) -> tuple[Tensor, Tensor, int]:
    """The iteration, its gradient, and the bytes that were kept between."""
    leaf, kept = matrix.clone().requires_grad_(), dict[int, Tensor]()

    def pack(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        out = newton_schulz(leaf, steps=5)
    size = sum(x.untyped_storage().nbytes() for x in kept.values())
    out.square().sum().backward()
    assert leaf.grad is not None
    return out.detach(), leaf.grad, size


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("shape", [(8, 8), (8, 12), (8, 40), (40, 8)])
def test_it_is_the_iteration_as_printed(shape: tuple[int, int], steps: int) -> None:
    matrix = conditioned(shape, 1e-3).requires_grad_()
    weights = torch.randn(4, *shape, dtype=torch.float64)
    found, expected = newton_schulz(matrix, steps=steps), as_printed(matrix, steps)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    got, wanted = (
        torch.autograd.grad(x, matrix, weights)[0] / matrix.norm() for x in (found, expected)
    )
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("least", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("shape", [(64, 64), (64, 153), (153, 64)])
def test_float32_keeps_its_digits(shape: tuple[int, int], least: float) -> None:
    """Small singular values grow by 3.4 a step, and so do roundings: 10⁻⁷ becomes some 10⁻⁶."""
    matrix = conditioned(shape, least).requires_grad_()
    short = matrix.detach().float().requires_grad_()
    found, expected = newton_schulz(short, steps=5), as_printed(matrix, 5)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-5)
    weights = torch.randn(4, *shape, dtype=torch.float64)
    (wanted,) = torch.autograd.grad(expected, matrix, weights)
    (got,) = torch.autograd.grad(found, short, weights.float())
    assert (got - wanted).abs().max() < 2e-5 * wanted.abs().max()


@pytest.mark.parametrize("shape", [(3, 8, 40), (3, 40, 8)])
def test_a_large_iteration_is_computed_again(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    out, gradient, kept = through(matrix)
    assert kept > 5 * matrix.nbytes
    monkeypatch.setattr(matrices, "KEPT", 6 * matrix.nbytes)
    assert through(matrix)[2] == kept, "what just fits is kept"
    monkeypatch.setattr(matrices, "KEPT", 6 * matrix.nbytes - 1)
    again, same, little = through(matrix)
    assert torch.equal(again, out)
    assert torch.equal(same, gradient)
    assert little <= matrix.nbytes


def test_it_has_second_derivatives_and_passes_through_transforms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrices, "KEPT", 0)
    matrix = torch.randn(2, 3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: newton_schulz(x, steps=2), matrix)
    each = torch.func.vmap(torch.func.grad(lambda x: newton_schulz(x, steps=2).sum()))
    whole = torch.autograd.grad(newton_schulz(matrix, steps=2).sum(), matrix)[0]
    torch.testing.assert_close(each(matrix.detach()), whole)
