"""Kernels of least squares under forgetting, in float32: few rows a chunk, whatever is asked."""

from typing import Any

import torch
from torch import Tensor

from mnemic.codegen.support import compared
from mnemic.codegen.support.cases import Case
from mnemic.pipeline import compile

TOKENS, WIDTH = 48, 8


def errors() -> dict[str, tuple[float, float]]:
    """What each part is off by, and what is allowed, where a call asks for chunks of 64 rows."""
    rule = compile("rls-geometric")
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, TOKENS, 1, WIDTH, generator=generator, dtype=torch.float64)
    log_gamma = torch.full((1, TOKENS, 1), 0.9, dtype=torch.float64).log()
    k = torch.nn.functional.elu(k) + 1
    case = Case("drawn", {"q": q, "k": k, "v": v, "log_gamma": log_gamma}, {}, {})

    def found(dtype: torch.dtype, form: str = "recurrent", rows: int | None = None) -> Any:
        return compared.everything(rule, case, form, dtype, torch.float32, rows)

    exact, own = compared.known(found, torch.float32)
    parts: dict[str, Tensor] = found(torch.float32, "triton", 64)
    return {
        part: (compared.error(parts[part], x),
               compared.allowed("triton", torch.float32, own[part]) or 0.0)
        for part, x in exact.items()
    }  # fmt: skip


def test_kernels_are_near_the_recurrence(interpreter) -> None:
    found = interpreter(errors)
    assert found
    assert all(error <= allowed for error, allowed in found.values()), found
