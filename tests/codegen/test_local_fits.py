"""Local regression in float32: keys that are equal, and keys that lie far from the origin."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mnemic.codegen.support import compared, local
from mnemic.codegen.support.cases import Case
from mnemic.pipeline import compile

TOKENS, WIDTH = 48, 8
SPEC: dict[str, Any] = {
    "mnemic": 1, "name": "local", "bias": "l2", "window": "all", "weights": "similarity",
    "optimizer": "nonparametric",
}  # fmt: skip
TENTH = {"kind": "nonparametric", "degree": 1, "ridge": 0.1}


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def errors(spec: dict[str, Any], q: Tensor, k: Tensor, v: Tensor) -> dict[str, tuple[float, float]]:
    """What each part of a chunk is off by in float32, and what is allowed."""
    rule = compile(spec)
    case = Case("drawn", {"q": q, "k": k, "v": v}, {}, {})

    def found(dtype: torch.dtype, form: str = "recurrent", rows: int | None = None) -> Any:
        return compared.everything(rule.operator, case, form, dtype, torch.float32, rows)

    exact, own = compared.known(found, torch.float32)
    parts = found(torch.float32, "chunk", 32)
    return {
        part: (compared.error(parts[part], x),
               compared.allowed("chunk", torch.float32, own[part]) or 0.0)
        for part, x in exact.items()
    }  # fmt: skip


@pytest.mark.parametrize("weighing", [local.exp_relative, local.relative])
def test_equal_scores_share_the_gradient_of_the_largest(weighing: Callable[..., Tensor]) -> None:
    """Equal keys' scores differ by the order of their sums: no copy takes the gradient of all."""
    score = torch.tensor([0.5, 3.0, 3.0 + 2**-21, 3.0 - 2**-21, 2.0], requires_grad=True)
    weights = weighing(score)
    assert torch.allclose(weights.detach().amax(), torch.ones(()))
    (slope,) = torch.autograd.grad(weights[0] + weights[-1], score)
    same = slope[1:4]
    assert float((same - same[0]).abs().max()) <= 1e-6 * float(slope.abs().max())
    apart = torch.tensor([0.5, 3.0, 3.0 - 2**-10], requires_grad=True)
    (slope,) = torch.autograd.grad(weighing(apart)[0], apart)
    assert float(slope[2]) == 0


def test_keys_far_from_the_origin_do_not_stop_the_iteration() -> None:
    solver = {"method": "nonparametric", "solver": {"kind": "conjugate-gradients"}}
    q, k, v = drawn(3, 1, TOKENS, 1, WIDTH)
    spec = {**SPEC, "memory": {**TENTH, "similarity": "exp(-d2/8)"}, "optimizer": solver}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = errors(spec, q + 30, k + 30, v)
    assert all(error <= most for error, most in found.values()), found
