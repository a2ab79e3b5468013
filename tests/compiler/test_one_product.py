"""The form in which papers print a step, against the compiled rule."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from packaged import rule_of
from torch import Tensor

from mnemic import pipeline
from mnemic.compiler.explain.dialect import dialect
from mnemic.compiler.explain.explanation import remarks
from mnemic.compiler.explain.one_product import one_product

Step = Callable[..., Tensor]

EYE = torch.eye(3, dtype=torch.float64)

PRINTED: dict[str, tuple[str, Step]] = {
    "deltanet": (
        "Wₜ = Wₜ₋₁ (I − ηₜ kₜ kₜᵀ) + ηₜ vₜ kₜᵀ",
        lambda W, k, v, eta: W @ (EYE - eta * k.outer(k)) + eta * v.outer(k),
    ),
    "gated-deltanet": (
        "Wₜ = αₜ Wₜ₋₁ (I − ηₜ kₜ kₜᵀ) + ηₜ vₜ kₜᵀ",
        lambda W, k, v, eta, alpha: alpha * W @ (EYE - eta * k.outer(k)) + eta * v.outer(k),
    ),
    "kda": (
        "Wₜ = Wₜ₋₁ Diag(αₜ) (I − ηₜ kₜ kₜᵀ) + ηₜ vₜ kₜᵀ",
        lambda W, k, v, eta, alpha: W @ alpha.diag() @ (EYE - eta * k.outer(k)) + eta * v.outer(k),
    ),
    "rwkv7": (
        "Wₜ = Wₜ₋₁ (Diag(αₜ) − ηₜ kₜ kₜᵀ) + ηₜ vₜ kₜᵀ",
        lambda W, k, v, eta, alpha: W @ (alpha.diag() - eta * k.outer(k)) + eta * v.outer(k),
    ),
    "leaky-lms": (
        "Wₜ = Wₜ₋₁ ((1 − ηₜ·λₜ) I − ηₜ kₜ kₜᵀ) + ηₜ vₜ kₜᵀ",
        lambda W, k, v, eta, lam: W @ ((1 - eta * lam) * EYE - eta * k.outer(k)) + eta * v.outer(k),
    ),
    "longhorn": (
        "Wₜ = Wₜ₋₁ (I − δₜ/(1 + δₜ·‖φ‖²) kₜ kₜᵀ) + δₜ/(1 + δₜ·‖φ‖²) vₜ kₜᵀ",
        lambda W, k, v, delta: W @ (EYE - delta / (1 + delta * k @ k) * k.outer(k))
        + delta / (1 + delta * k @ k) * v.outer(k),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_one_product_is_the_compiled_step(name: str) -> None:
    text, step = PRINTED[name]
    rule = rule_of(name)
    assert one_product(rule, dialect(rule, tex=False)) == text
    assert any(text in line for line in remarks(rule))
    torch.manual_seed(0)
    compiled, tokens = pipeline.compile(name), 5
    q, k = torch.randn(2, 1, tokens, 1, 3, dtype=torch.float64)
    v = torch.randn(1, tokens, 1, 2, dtype=torch.float64)
    given: dict[str, Any] = {}
    values: dict[str, Tensor] = {}
    for scalar in rule.scalars:
        if scalar.argument is None:
            continue
        shape = (1, tokens, 1) + ((3,) if scalar.per == "key" else ())
        x = torch.rand(shape, dtype=torch.float64) / 2 + 0.25
        values[scalar.name] = x
        given[scalar.argument] = x.log() if scalar.logarithmic else x
    _, state = compiled(q, k, v, **given, form="recurrent", output_final_state=True)
    W = torch.zeros(2, 3, dtype=torch.float64)
    for t in range(tokens):
        W = step(W, k[0, t, 0], v[0, t, 0], **{n: x[0, t, 0] for n, x in values.items()})
    assert torch.allclose(W, state["W"][0, 0], atol=1e-12)


@pytest.mark.parametrize("name", ["linear-attention", "titans", "elastic-net", "huber-coordinate",
                                  "titans-linear", "swdt", "lru", "deltaproduct"])  # fmt: skip
def test_what_is_no_such_product_is_not_printed_so(name: str) -> None:
    rule = rule_of(name)
    assert one_product(rule, dialect(rule, tex=False)) is None
