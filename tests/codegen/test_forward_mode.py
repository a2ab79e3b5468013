"""Derivatives along a direction (torch.func.jvp) of what has a gradient written by hand: attention
kernels, conjugate gradients, a simplex whose entries are searched; against reverse mode.
"""

from typing import Any

import pytest
import torch

from mnemic import pipeline

OWN: dict[str, Any] = {
    "mnemic": 1, "name": "a-generator-of-ones-own", "bias": "l2",
    "retention": {"local": {"f-divergence": "x*log(x) + (x - 1)**2/2"},
                  "constraint": {"kind": "simplex", "scale": 2}},
    "optimizer": {"rate": "token"},
}  # fmt: skip
SPECS = ("swa", "softmax-attention", "local-linear-attention", "f-divergence-chi2", OWN)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # jvp's own formulas
@pytest.mark.some(2)
@pytest.mark.parametrize("tokens", [6, 20])
@pytest.mark.parametrize("spec", SPECS, ids=lambda x: x if isinstance(x, str) else x["name"])
def test_a_derivative_along_a_direction_is_the_gradients(spec: Any, tokens: int) -> None:
    kind = pipeline.compile(spec).module.Layer
    torch.manual_seed(0)
    layer = kind(16, heads=2).double()
    x = torch.randn(1, tokens, 16, dtype=torch.float64)
    given = dict(layer.named_parameters())

    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        y: torch.Tensor = torch.func.functional_call(layer, parameters, (x,))
        return y.sin().sum()

    along = {n: torch.randn_like(p) for n, p in given.items()}
    moved = torch.func.jvp(loss, (given,), (along,))[1]
    found = torch.autograd.grad(loss(given), list(given.values()), materialize_grads=True,
                                allow_unused=True)  # fmt: skip
    expected = sum((g * d).sum() for g, d in zip(found, along.values(), strict=True))
    torch.testing.assert_close(moved, expected, rtol=1e-9, atol=1e-12)
