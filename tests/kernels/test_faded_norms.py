"""Rows that have nearly faded when they go back to their norms: float32 has no square of them."""

from typing import Any

import pytest
import torch
from torch import Tensor

import mnemic
from mnemic.codegen.support.matrices import norms_of, scaled_to_norms

SPEC: dict[str, Any] = {
    "mnemic": 1, "name": "faded", "bias": "l2", "memory": {"kind": "mlp", "norm": False},
    "retention": {"decay": "token", "normalize": "layer-norm"},
    "optimizer": {"rate": "token", "anchor": {"chunk": 16}},
}  # fmt: skip
TOKENS = 24


@pytest.mark.parametrize("axis", ["v", "k"])
@pytest.mark.parametrize("size", [1.0, 1e-22, 1e-27])
def test_a_faded_row_has_its_direction_and_gradient(axis: str, size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    entries = size * torch.randn(3, 4, 4, dtype=torch.float64, generator=generator)
    pull = torch.randn(3, 4, 4, dtype=torch.float64, generator=generator)
    wanted = torch.rand(3, 4, dtype=torch.float64, generator=generator)

    def found(dtype: torch.dtype) -> tuple[Tensor, ...]:
        memory = entries.to(dtype).requires_grad_()
        norms = wanted.to(dtype).requires_grad_()
        out = scaled_to_norms(memory, norms, axis=axis)
        told = torch.autograd.grad((out * pull.to(dtype)).sum(), (memory, norms))
        sizes = norms_of(memory, axis=axis)
        slopes = torch.autograd.grad(sizes.sum(), memory)[0]
        return out, size * told[0], told[1], sizes / size, slopes

    for single, double in zip(found(torch.float32), found(torch.float64), strict=True):
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", ["v", "k"])
def test_a_row_of_zeros_stays_and_has_a_finite_gradient(axis: str) -> None:
    memory, norms = torch.zeros(2, 3, 4, requires_grad=True), torch.ones(2, 3 if axis == "v" else 4)
    out = scaled_to_norms(memory, norms, axis=axis)
    assert not out.any()
    assert torch.autograd.grad(out.sum(), memory)[0].isfinite().all()
    assert not torch.autograd.grad(norms_of(memory, axis=axis).sum(), memory)[0].any()


def gradients(form: str, dtype: str) -> dict[str, Tensor]:
    """Gradients of a memory whose first chunk writes nothing and keeps 6e-23 of it."""
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q, k, v = (torch.nn.functional.normalize(draw(1, TOKENS, 1, 4), dim=-1) for _ in range(3))
    eta, log_alpha = torch.full((1, TOKENS, 1), 0.1), torch.full((1, TOKENS, 1), -0.1)
    eta[:, :16], log_alpha[:, :16] = 0.0, -3.2
    given = {"q": q, "k": k, "v": v, "eta": eta, "log_alpha": log_alpha}
    leaves = {n: x.to(kind).requires_grad_() for n, x in given.items()}
    params = {n: x.to(kind).requires_grad_()
              for n, x in {"W1": draw(1, 4, 16), "W2": draw(1, 16, 4)}.items()}  # fmt: skip
    rule = mnemic.compile(SPEC)
    out, _ = rule(**leaves, params=params, form=form)
    told = torch.autograd.grad(torch.cos(out).sum(), [*leaves.values(), *params.values()])
    return dict(zip([*leaves, *params], (x.double() for x in told), strict=True))


def apart(form: str) -> dict[str, float]:
    """How far float32's gradients are from float64's, by the largest entry."""
    single, double = gradients(form, "float32"), gradients("chunk", "float64")
    return {n: float((single[n] - x).abs().max() / x.abs().max()) for n, x in double.items()}


@pytest.mark.parametrize("form", ["chunk", "recurrent"])
def test_the_gradient_in_float32_is_that_in_float64(form: str) -> None:
    assert {n: x for n, x in apart(form).items() if not x < 1e-3} == {}


def test_the_kernels_gradient_is_too(interpreter: Any) -> None:
    assert {n: x for n, x in interpreter(apart, form="triton").items() if not x < 1e-3} == {}
