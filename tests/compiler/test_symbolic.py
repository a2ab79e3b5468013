"""Rewrites of derived expressions: what would overflow in floating point does not."""

from __future__ import annotations

import pytest
import torch

from mnemic.compiler import symbols as sym
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.dsl.spec import Spec

FAR = {
    "log(cosh(e))": (1, 0),
    "log(cosh(3*e))": (3, 0),
    "2*log(cosh(3*e)) + e**2/2": (6, 1),
    "log(1 + exp(4*e)) + log(1 + exp(-4*e))": (4, 0),
}
"""Losses, and a and b of their error signal a sign(e) + b e far out."""


@pytest.mark.parametrize("loss", FAR)
def test_error_signals_are_finite_far_out(loss: str) -> None:
    rule = derive_spec(Spec.model_validate({"name": "mine", "bias": {"expr": loss}}))
    e = torch.tensor([-1e3, -20.0, 20.0, 1e3], dtype=torch.float64)
    at = {sym.y: e + 0.5, sym.v: torch.full_like(e, 0.5)}
    flat, steep = FAR[loss]
    torch.testing.assert_close(evaluate(rule.error.signal, at), flat * e.sign() + steep * e)
    slope = torch.full_like(e, float(steep))
    torch.testing.assert_close(evaluate(rule.error.slope, at) + torch.zeros_like(e), slope)
