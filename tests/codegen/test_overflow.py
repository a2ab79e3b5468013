"""Expressions that overflow on the way to a finite value, written so that they do not."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from conformance import compiled
from torch import Tensor

from mnemic.codegen.tiled.printer import print_tile
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler import symbols as sym
from mnemic.compiler.symbolic import read

FEATURES: dict[str, Callable[[Tensor], Tensor]] = {
    "log(1 + exp(x))": F.softplus,
    "1/(1 + exp(-x))": torch.sigmoid,
    "exp(x)/(1 + exp(x))": torch.sigmoid,
    "x/(1 + exp(-x))": F.silu,
    "sinh(x)/cosh(x)": torch.tanh,
    "1/(1 + exp(x))**2": lambda x: torch.sigmoid(-x) ** 2,
    "2*log(1 + exp(x/2)) - 1": lambda x: 2 * F.softplus(x / 2) - 1,
}
LARGE = torch.tensor([-200.0, -30.0, 0.5, 200.0])


@pytest.mark.some(4)
@pytest.mark.parametrize("text", FEATURES)
def test_features_and_their_gradients_are_finite_in_float32(text: str) -> None:
    """One token: y = η v φ(k)·φ(q), beside the same in float64 by PyTorch's own functions."""
    spec = {
        "name": "large",
        "bias": "dot",
        "features": {"expr": text},
        "optimizer": {"rate": "token"},
    }
    rule, phi = compiled(spec).operator, FEATURES[text]
    k, q = LARGE.clone().requires_grad_(), LARGE.flip(0).clone().requires_grad_()
    v, eta = torch.tensor([0.5, -1.0]), torch.tensor(0.25)
    y, _ = rule(
        q[None, None, None], k[None, None, None], v[None, None, None], eta=eta[None, None, None]
    )
    found = torch.autograd.grad(y.sum(), (k, q))
    wide = [x.detach().double().requires_grad_() for x in (k, q)]
    expected = eta.double() * v.double() * (phi(wide[0]) * phi(wide[1])).sum()
    torch.testing.assert_close(y.flatten(), expected.float())
    known = torch.autograd.grad(expected.sum(), wide)
    for one, other in zip(found, known, strict=True):
        torch.testing.assert_close(one, other.float(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("text", FEATURES)
def test_neither_printer_writes_a_sum_with_an_exponential(text: str) -> None:
    """In PyTorch and on tiles."""
    expr = read(text, {"x": sym.x})
    for written in (print_torch(expr, {"x": "k"}), print_tile(expr, {"x": "k"})):
        assert "exp(" not in written.replace("tiles.expm1(", "")
        assert "cosh" not in written
