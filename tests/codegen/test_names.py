"""A coefficient may have any name, whatever generated code calls its own things."""

import inspect
from typing import Any

import pytest
import torch
from conformance import agree, as_interpreted, close, compiled, error, inputs, interpreted, run

from mnemic import pipeline
from mnemic.codegen import available
from mnemic.codegen.support.layer import MemoryLayer
from mnemic.compiler.oracle.verify_error import step
from mnemic.dsl.load import load
from mnemic.dsl.rules.coefficients import RESERVED
from mnemic.errors import InvalidSpec

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


@pytest.mark.some(4)
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


@pytest.mark.some(3)
@pytest.mark.parametrize("name", NAMES)
def test_it_has_its_kernels_all_the_same(name: str) -> None:
    found = available.fused(pipeline.derive(load(everywhere(name))))
    assert [one.text for one in found] == ["chunk, with gradient", "token, with gradient"]


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ["torch", "ops", "norm", "placed"])
def test_a_layer_takes_it_by_its_own_name(name: str) -> None:
    layer = pipeline.compile(load(everywhere(name))).layer(8)
    assert name in layer.coefficients(torch.randn(1, 3, 8))
    out = layer(torch.randn(1, 3, 8))
    assert out.shape == (1, 3, 8)
    assert bool(out.isfinite().all())


def _taken() -> set[str]:
    """What the operators and layers take by name beside coefficients."""
    from mnemic.codegen.support.operator import Operator
    from mnemic.codegen.support.slots import SlotOperator

    calls = [getattr(kind, n) for kind in (Operator, SlotOperator)
             for n in ("__call__", "begin", "read")]  # fmt: skip
    parameters = [p for call in calls for p in inspect.signature(call).parameters.values()]
    return {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


@pytest.mark.parametrize("name", sorted(_taken()))
def test_no_coefficient_takes_the_place_of_an_argument(name: str) -> None:
    with pytest.raises(InvalidSpec, match="must not be a symbol, a function or an argument"):
        load(everywhere(name))


def test_a_layer_has_coefficients_of_any_name() -> None:
    """Under the names of a module's own things, and of what is around in generated code."""
    names = [n for n in (*dir(torch.nn.Module), *dir(MemoryLayer)) if not n.startswith("_")]
    names = sorted({*names, "x", "x_", "F", "zip", "print", "math", "type", "kwargs"})
    some = sorted({*[n for n in names if n not in RESERVED][::2], "x", "x_", "x__"})
    spec = {
        "mnemic": 1, "name": "probe", "bias": "l2",
        "coefficients": {n: {"from": "parameter", "activation": "sigmoid"} for n in some},
        "keys": {"value": f"v*({' + '.join(some[::2])})", "write": f"k*({' + '.join(some[1::2])})"},
    }  # fmt: skip
    layer = pipeline.compile(spec).layer(4)
    assert set(layer.coefficients(torch.zeros(1, 1, 4))) == set(some)
    x = torch.randn(1, 2, 4)
    layer(x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    layer.load_state_dict(layer.state_dict())


HUBERS: tuple[dict[str, Any], ...] = (
    {"bias": "huber"},
    {"bias": {"kind": "huber", "delta": "token"},
     "retention": {"decay": "token", "order": "before"}},
    {"bias": {"kind": "huber", "over": "norm", "delta": "token"}},
    {"bias": {"expr": "(1 + delta)*e**2/2"}, "coefficients": {"delta": "token"}},
)  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.parametrize("axes", HUBERS)
def test_an_implicit_step_of_a_loss_with_its_own_delta(axes: dict[str, Any]) -> None:
    """The rate is eta then: two things of one name would be one symbol."""
    case = compiled(
        {"mnemic": 1, "name": "x", **axes, "optimizer": {"method": "implicit", "rate": "token"}}
    )
    arguments = inputs(case, T)
    assert "eta" in arguments
    expected = run(case, arguments, "recurrent")
    assert error(expected.out, interpreted(case, arguments)[0]) < 1e-12
    agree(run(case, arguments, "chunk", chunk_size=4), expected)
    assert step(case.rule) < 1e-9  # against the minimiser of the problem as written
