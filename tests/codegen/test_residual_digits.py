"""Gradients of residual rules keep the digits of float32 where later steps undo earlier ones."""

from typing import Any

import pytest
import torch

from mnemic.codegen.support import compared
from mnemic.codegen.support.cases import Case
from mnemic.pipeline import compile

TOKENS, WIDTH, PERIOD = 128, 8, 8


@pytest.mark.some(1)
@pytest.mark.parametrize("loss", ["log(cosh(e))", "sqrt(1 + e**2) - 1"])
def test_gradients_are_as_near_as_tokens(loss: str) -> None:
    rule = compile({
        "mnemic": 1, "name": "digits", "bias": {"expr": loss}, "features": "elu",
        "optimizer": {"method": "implicit", "rate": "token"},
    })  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, TOKENS, 2, WIDTH, generator=generator, dtype=torch.float64)
    k = 2 * k[:, :PERIOD].repeat(1, TOKENS // PERIOD, 1, 1)
    delta = torch.rand(2, TOKENS, 2, generator=generator, dtype=torch.float64)
    case = Case("drawn", {"q": q, "k": k, "v": v, "delta": delta}, {}, {})

    def found(dtype: torch.dtype, form: str = "recurrent", rows: int | None = None) -> Any:
        return compared.everything(rule.operator, case, form, dtype, torch.float32, rows)

    exact, own = compared.known(found, torch.float32)
    parts = found(torch.float32, "chunk", 64)
    for part, expected in exact.items():
        most = compared.allowed("chunk", torch.float32, own[part])
        assert most is not None, part
        assert compared.error(parts[part], expected) <= most, part
