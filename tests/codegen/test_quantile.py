"""The pinball loss: the loss of its definition, and a memory that learns a quantile."""

from typing import Any

import pytest
import torch
from test_own_expressions import conforms

import mnemic
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.problem import state
from mnemic.compiler.symbols import e as residual
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec


def spec(**bias: Any) -> dict[str, Any]:
    """A memory without decay that descends on the pinball loss."""
    return {
        "name": "quantile", "bias": {"kind": "quantile", **bias}, "optimizer": {"rate": "token"},
    }  # fmt: skip


@pytest.mark.parametrize("tau", [0.5, 0.9, 1e-5])
def test_the_loss_is_the_pinball(tau: float) -> None:
    errors = torch.linspace(-3, 3, 13, dtype=torch.float64)
    found = evaluate(state(load(spec(tau=tau))).loss, {residual: errors})
    missing = -errors  # v - prediction
    assert torch.allclose(found, torch.maximum(tau * missing, (tau - 1) * missing))


def test_a_memory_of_one_key_learns_the_quantile_of_its_values() -> None:
    rule = mnemic.compile(spec(tau=0.9))
    tokens, keys = 4000, torch.ones(1, 4000, 1, 1)
    v = torch.randn(1, tokens, 1, 8, generator=torch.Generator().manual_seed(0))
    rate = torch.full((1, tokens, 1), 0.02)
    out, _ = rule(keys, keys, v, eta=rate)
    expected = v[0, :, 0].quantile(0.9, dim=0)
    assert (out[0, -1000:, 0].mean(0) - expected).abs().max() < 0.15
    assert expected.min() > 1  # far from the mean, which is 0


def test_its_forms_agree() -> None:
    conforms(spec(tau=0.9, smooth=4))


def test_a_share_is_between_none_and_all() -> None:
    with pytest.raises(InvalidSpec, match=r"bias.tau: .*1"):
        load(spec(tau=1.0))
