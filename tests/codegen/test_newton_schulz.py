"""Newton–Schulz keeps little for its gradient, and gives the same one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from mnemic.codegen.support import matrices
from mnemic.codegen.support.matrices import newton_schulz


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
