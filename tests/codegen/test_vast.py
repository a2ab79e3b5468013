"""Numbers whose squares float32 does not have: LayerNorms of them are numbers all the same."""

import pytest
import torch
from conformance import agree, beginning, compiled, error, inputs, run

from mnemic.codegen.support import rows


@pytest.mark.parametrize("size", [1.0, 1e12, 1e25, 1e30])
def test_layer_norm_and_its_slopes_of_vast_rows(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    z, g, d = (torch.randn(3, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    wide = (size * z).requires_grad_()
    exact = torch.nn.functional.layer_norm(wide, (8,), eps=1e-5)
    (slope,) = torch.autograd.grad(exact, wide, g, create_graph=True)
    (bend,) = torch.autograd.grad(slope, wide, d, retain_graph=True)
    single = wide.detach().float()
    assert error(rows.layer_norm(single), exact) <= 1e-6
    assert error(size * rows.layer_norm_vjp(g.float(), single), size * slope) <= 1e-6
    if size < 1e15:  # beyond, second slopes are below float32's smallest numbers
        found = rows.layer_norm_bend(d.float(), g.float(), single)
        assert error(size**2 * found, size**2 * bend) <= 1e-5


def test_values_of_a_million_behind_a_norm() -> None:
    case, found = compiled("moneta-derived"), []
    for dtype in (torch.float64, torch.float32):
        x = inputs(case, 6, dtype=dtype)
        x["v"] = 1e6 * x["v"]
        params = beginning(case, x["k"], x["v"])
        found.append(case.operator(**x, form="recurrent", params=params))
    exact, single = (y[0] if isinstance(y, tuple) else y for y in found)
    assert single.isfinite().all()
    assert error(single, exact) <= 1e-4


def test_slopes_of_large_residuals_are_numbers() -> None:
    """cosh² of a residual overflows beyond 44 in float32: the slope is written in tanh."""
    case = compiled({
        "name": "steep", "bias": {"expr": "log(cosh(e))"},
        "optimizer": {"rate": {"from": "input", "normalized": True}},
    })  # fmt: skip
    arguments = inputs(case, 9, dtype=torch.float32)
    arguments["v"] = 1e3 * arguments["v"]
    found = run(case, arguments, "chunk", chunk_size=4)
    assert all(x.isfinite().all() for _, x in found.parts())
    agree(found, run(case, arguments, "recurrent"), 1e-3)


@pytest.mark.parametrize("loss", [
    "log(1 + exp(e))**2", "2*log(1 + exp(2*e))**2", "1/(1 + exp(-e))**2",
    "log(1 + exp(e) + exp(-e))", "log(2 + cosh(e))", "log(exp(y) + exp(v)) - (y + v)/2",
    "log(cosh(n))/n", "n*tanh(n)",
])  # fmt: skip
def test_errors_of_losses_by_exponentials_are_numbers(loss: str) -> None:
    """exp(e) σ(−e) would be ∞·0 where e is beyond 88 in float32: it is σ(e). So too quotients of
    sums of exponentials, which are divided by the largest."""
    case = compiled({"name": "logistic", "bias": {"expr": loss}, "optimizer": {"rate": 0.01}})
    single = inputs(case, 3, dtype=torch.float32)
    single["v"] = 1e3 * single["v"]
    exact = {n: x.double() for n, x in single.items()}
    for form in ("recurrent", "chunk"):
        found = run(case, single, form)
        assert all(x.isfinite().all() for _, x in found.parts())
        agree(found, run(case, exact, form), 1e-4)
