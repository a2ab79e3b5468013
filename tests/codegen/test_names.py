"""A coefficient may have any name, whatever generated code calls its own things."""

from typing import Any

import pytest
import torch
from conformance import agree, as_interpreted, close, compiled, error, inputs, interpreted, run

from mnemic import pipeline
from mnemic.codegen import available
from mnemic.dsl.load import load

NAMES = ("zero", "torch", "ops", "error", "ends", "TINY", "row", "chunk", "position", "own_zero",
         "kept", "BK", "h_index", "norm", "memory")  # fmt: skip

T = 9


def everywhere(name: str) -> dict[str, Any]:
    """A spec whose value, loss, decay and rate name one coefficient."""
    return {
        "mnemic": 1, "name": "probe",
        "coefficients": {name: {"from": "input", "activation": "sigmoid"}},
        "keys": {"value": f"{name}*v"},
        "bias": {"expr": f"(1 + {name})*(sqrt(1 + e**2) - 1)"},
        "retention": {"decay": f"exp(-{name})"},
        "optimizer": {"rate": f"{name}/4"},
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_forms_agree_whatever_a_coefficient_is_called(name: str) -> None:
    case = compiled(everywhere(name))
    arguments = inputs(case, T)
    assert name in arguments
    expected = run(case, arguments, "recurrent")
    out, state = interpreted(case, arguments)
    assert error(expected.out, out) < 1e-12
    states = as_interpreted(expected.states)
    close(states, {n: state[n] for n in states}, 1e-12)
    agree(run(case, arguments, "chunk", chunk_size=4), expected)


@pytest.mark.parametrize("name", NAMES)
def test_it_has_its_kernels_all_the_same(name: str) -> None:
    found = available.fused(pipeline.derive(load(everywhere(name))))
    assert [one.text for one in found] == ["chunk, with gradient", "token, with gradient"]


@pytest.mark.parametrize("name", ["torch", "ops", "norm"])
def test_a_layer_takes_it_by_its_own_name(name: str) -> None:
    layer = pipeline.compile(load(everywhere(name))).layer(8)
    assert name in layer.coefficients(torch.randn(1, 3, 8))
    out = layer(torch.randn(1, 3, 8))
    assert out.shape == (1, 3, 8)
    assert bool(out.isfinite().all())
