"""Newton–Schulz keeps little for its gradient, and gives the same one."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
import torch._dynamo
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

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
    squares = 2 * 3 * 8 * 8 * matrix.element_size()
    monkeypatch.setattr(matrices, "KEPT", 5 * (matrix.nbytes + squares))
    assert through(matrix)[2] == kept, "what just fits is kept"
    monkeypatch.setattr(matrices, "KEPT", 5 * (matrix.nbytes + squares) - 1)
    again, same, little = through(matrix)
    assert torch.equal(again, out)
    assert torch.equal(same, gradient)
    assert little <= matrix.nbytes


@pytest.mark.parametrize("shape", [(5, 7), (7, 5), (2, 3, 6, 6), (0, 4, 5)])
@pytest.mark.parametrize("kept", [0, 2**26])
def test_its_gradient_is_that_of_the_formula(
    shape: tuple[int, ...], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "KEPT", kept)
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    pull, plain, leaf = torch.randn_like(x), x.clone().requires_grad_(), x.clone().requires_grad_()
    tall = shape[-2] > shape[-1]
    y = plain.mT if tall else plain
    y = y / (torch.linalg.matrix_norm(y)[..., None, None] + 1e-7)
    for _ in range(5):
        gram = y @ y.mT
        y = 3.4445 * y + (-4.7750 * gram + 2.0315 * gram @ gram) @ y
    expected = y.mT if tall else y
    out = newton_schulz(leaf, steps=5)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    (told,) = torch.autograd.grad(out, leaf, pull)
    (right,) = torch.autograd.grad(expected, plain, pull)
    torch.testing.assert_close(told, right, rtol=1e-11, atol=1e-12)


def test_without_a_gradient_one_step_is_alive_at_a_time() -> None:
    """What a gradient would keep, five times the matrix and more, is not held without one."""
    alive, most = set[int](), [0]

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and out.shape == matrix.shape and out._base is None:
                alive.add(id(out))
                weakref.finalize(out, alive.discard, id(out))
                most[0] = max(most[0], len(alive))
            return out

    matrix = torch.randn(3, 8, 40)
    with torch.no_grad(), Counted():
        newton_schulz(matrix, steps=20)
    assert 0 < most[0] < 8


def test_a_matrix_of_zeros_has_a_finite_gradient() -> None:
    """As of a padded token, whose step is none."""
    zero = torch.zeros(2, 3, 4, dtype=torch.float64, requires_grad=True)
    (told,) = torch.autograd.grad(newton_schulz(zero, steps=5).sum(), zero)
    torch.testing.assert_close(told, torch.full_like(told, 3.4445**5 / 1e-7))


def test_it_has_second_derivatives_and_passes_through_transforms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrices, "KEPT", 0)
    matrix = torch.randn(2, 3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: newton_schulz(x, steps=2), matrix)
    each = torch.func.vmap(torch.func.grad(lambda x: newton_schulz(x, steps=2).sum()))
    whole = torch.autograd.grad(newton_schulz(matrix, steps=2).sum(), matrix)[0]
    torch.testing.assert_close(each(matrix.detach()), whole)


def products(graph: torch.fx.GraphModule) -> int:
    """Count a graph's products of matrices."""
    called = (node for node in graph.graph.nodes if node.op == "call_function")
    return sum("bmm" in str(node.target) for node in called)


@pytest.mark.filterwarnings("ignore")  # torch's own, of its own code
@pytest.mark.parametrize(("kept", "backward"), [(2**26, 5 * 4), (0, 5 * 3 - 1 + 5 * 4)])
def test_in_a_graph_its_gradient_is_by_hand(
    kept: int, backward: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three products a step; four for its gradient, where torch's own formulas take six. What is
    computed again leaves out the last product."""
    monkeypatch.setattr(matrices, "KEPT", kept)
    found: dict[str, int] = {}

    def noting(name: str) -> Any:
        def compiler(graph: torch.fx.GraphModule, _: Any) -> Any:
            found[name] = products(graph)
            return make_boxed_func(graph)

        return compiler

    backend = aot_autograd(fw_compiler=noting("forward"), bw_compiler=noting("backward"))
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: newton_schulz(x, steps=5), backend=backend, dynamic=False)
    x = torch.randn(3, 8, 40, dtype=torch.float64, requires_grad=True)
    pull = torch.randn(3, 8, 40, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(compiled(x), x, pull)
    (expected,) = torch.autograd.grad(newton_schulz(x, steps=5), x, pull)
    torch.testing.assert_close(gradient, expected)
    assert found == {"forward": 5 * 3, "backward": backward}
