"""Predictions that meet their values exactly, as zeros do before a memory has learned anything."""

import math

import pytest
import sympy as sp
import torch

import mnemic
from mnemic.codegen.guards import TINY
from mnemic.codegen.torch_printer import print_torch

SMOOTH = {"e**2/(1+abs(e))": 2.0, "abs(e)**3/3 + e**2": 2.0, "e**2*exp(-abs(e))": 2.0}
"""Losses with |e| in them that have a second derivative at zero, and what it is."""

STEEP = ["abs(e)**1.5", "abs(e)**1.2 + e**2/8", "where(abs(e)<1/10, e**2/2, log(abs(e)))",
         "where(abs(e)<1/100, e**2/2, 1-sin(e)/e)", "sqrt(abs(e))*e**2", "sqrt(abs(e)+1)",
         "log(cosh(e)) + abs(e)/10", "abs(e)*log(1+abs(e))"]  # fmt: skip
"""Losses whose error, or the branch of it that is not taken, has no finite slope at zero, or none
to automatic differentiation."""


e = sp.Symbol("e", real=True)


def test_a_branch_adds_nothing_where_an_earlier_one_is_taken() -> None:
    """log |e| holds from 1/10 to 1, by a condition that holds at zero as well."""
    size = sp.Abs(e)
    error = sp.Piecewise((e, size < sp.Rational(1, 10)), (sp.log(size), size < 1), (1 / e, True))
    x = torch.tensor([0.0, 0.05, 0.5, 2.0], requires_grad=True)
    found = eval(print_torch(error, {}), {"torch": torch, "e": x, "TINY": TINY})
    torch.testing.assert_close(found, torch.tensor([0.0, 0.05, math.log(0.5), 0.5]))
    found.sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([1.0, 1.0, 2.0, -0.25]))


def compiled(loss: str) -> mnemic.Compiled:
    spec = {"mnemic": 1, "name": "met", "bias": {"expr": loss}, "optimizer": {"rate": "token"}}
    return mnemic.compile(spec)


def drawn(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A text of 40 tokens whose first values are zero, as the memory is."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 40, 2, 8, dtype=dtype) for _ in range(3))
    v[:, :9] = 0
    eta = torch.rand(2, 40, 2, dtype=dtype) / 4
    k = torch.nn.functional.normalize(k, dim=-1)
    return {name: x.requires_grad_() for name, x in {"q": q, "k": k, "v": v, "eta": eta}.items()}


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("loss", SMOOTH)
def test_the_slope_at_zero_is_the_losss(loss: str, form: str) -> None:
    one = torch.tensor([1.0, 0.0], dtype=torch.float64).reshape(1, 1, 1, 2)
    v = torch.zeros_like(one, requires_grad=True)
    eta = torch.full((1, 1, 1), 0.5, dtype=torch.float64)
    out, _ = compiled(loss)(one, one, v, eta=eta, form=form)
    (slope,) = torch.autograd.grad(out.sum(), v)
    torch.testing.assert_close(slope, torch.full_like(v, SMOOTH[loss] / 2))


@pytest.mark.parametrize("loss", [*SMOOTH, *STEEP])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forms_agree_where_values_are_met(loss: str, dtype: torch.dtype) -> None:
    rule, found = compiled(loss), []
    for form in ("recurrent", "chunk"):
        given = drawn(dtype)
        out, _ = rule(**given, form=form)
        grads = torch.autograd.grad(out.square().sum(), list(given.values()))
        assert all(bool(g.isfinite().all()) for g in grads), (loss, form)
        found.append((out.detach(), *grads))
    tight = 1e-9 if dtype == torch.float64 else 1e-3
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() <= tight * (1 + one.abs().max())
