"""Kernels of least squares under forgetting, in float32: few rows a chunk, whatever is asked."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from mnemic.codegen.available import fused
from mnemic.codegen.support import compared
from mnemic.codegen.support.cases import Case
from mnemic.codegen.support.launched import fainter
from mnemic.pipeline import compile, derive

TOKENS, WIDTH = 48, 8


FIXED: dict[str, Any] = {
    "mnemic": 1, "name": "fixed", "bias": "l2", "window": "all",
    "retention": {"view": "ftrl", "global": {"l2": 0.5}}, "optimizer": "exact",
}  # fmt: skip


def weighed(gamma: Any) -> dict[str, Any]:
    """A spec whose weights fade as it says."""
    gate = {"a": {"from": "input", "activation": "sigmoid"}} if "a" in str(gamma) else {}
    return {**FIXED, "weights": {"kind": "geometric", "gamma": gamma}, "coefficients": gate}


def errors() -> dict[str, tuple[float, float]]:
    """What each part is off by, and what is allowed, where a call asks for chunks of 64 rows."""
    return apart(compile("rls-geometric"), 0.9)


def fading_errors() -> dict[str, tuple[float, float]]:
    """The same where weights fade faster than a chunk's kernel bears."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = apart(compile("rls-geometric"), 0.6)
    assert any("leave less than 0.1 of the past over 16 tokens" in str(w.message) for w in told)
    return found


def fixed_errors() -> dict[str, tuple[float, float]]:
    """The same where the spec fixes such weights: the token's kernel runs."""
    return apart(compile(weighed(0.6)), None)


def apart(rule: Any, gamma: float | None) -> dict[str, tuple[float, float]]:
    """What each part is off by, and what is allowed."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, TOKENS, 1, WIDTH, generator=generator, dtype=torch.float64)
    k = torch.nn.functional.elu(k) + 1
    arguments = {"q": q, "k": k, "v": v}
    if gamma is not None:
        arguments["log_gamma"] = torch.full((1, TOKENS, 1), gamma, dtype=torch.float64).log()
    case = Case("drawn", arguments, {}, {})

    def found(dtype: torch.dtype, form: str = "recurrent", rows: int | None = None) -> Any:
        return compared.everything(rule.operator, case, form, dtype, torch.float32, rows)

    exact, own = compared.known(found, torch.float32)
    parts: dict[str, Tensor] = found(torch.float32, "triton", 64)
    return {
        part: (compared.error(parts[part], x),
               compared.allowed("triton", torch.float32, own[part]) or 0.0)
        for part, x in exact.items()
    }  # fmt: skip


@pytest.mark.parametrize("tried", [errors, fading_errors, fixed_errors])
def test_kernels_are_near_the_recurrence(interpreter, tried) -> None:
    found = interpreter(tried)
    assert found
    assert all(error <= allowed for error, allowed in found.values()), found


@pytest.mark.parametrize(
    ("gamma", "fades"),
    [(0.9, False), (0.8, True), ("token", False), ({"expr": "1 - a/2"}, True),
     ({"expr": "1 - 2**(-5-h)"}, False), ({"expr": "1 - 2**(-1-h)"}, True)],
)  # fmt: skip
def test_weights_that_the_spec_lets_fade_too_fast_have_no_chunk_kernel(gamma, fades) -> None:
    chunk, token = fused(derive(weighed(gamma)))
    assert token.missing is None
    assert ("leave less than 0.1 of the past" in (chunk.missing or "")) is fades


def test_any_sixteen_tokens_in_a_row_are_looked_at() -> None:
    kept = torch.zeros(1, 40, 1)
    sudden = kept.clone()
    sudden[:, 20:28] = -0.3
    assert not fainter(kept, 16)
    assert fainter(sudden, 16)
    assert fainter(sudden[:, 20:28], 16)
    assert not fainter(sudden[:, :26], 16)


@pytest.mark.parametrize(("ridge", "why"), [("forgotten", "the weights forget"), ("constant", "")])
def test_conjugate_gradients_have_a_kernel_where_the_ridge_stays(ridge, why) -> None:
    weights = {"kind": "geometric", "gamma": "token", "ridge": ridge}
    solver = {"solver": {"kind": "conjugate-gradients"}}
    rule = derive({**FIXED, "weights": weights, "optimizer": {"method": "exact", **solver}})
    assert (fused(rule)[0].missing or "").startswith(why)
    assert bool(fused(rule)[0].missing) is bool(why)
