"""Constraints on a memory behind O or an interval: it starts inside them, without parameters."""

from typing import Any

import pytest
import torch
from conformance import Sizes, agree, beginning, compiled, error, inputs, interpreted, run
from test_own_expressions import conforms

from mnemic.compiler.oracle.stated import stated
from mnemic.errors import InvalidSpec

ALONE = Sizes(batch=1, heads=1)
"""One sequence of one head: the problem as written is minimised numerically, token by token."""

MUON = {"method": "muon", "ns_steps": 2}
CONSTRAINTS: dict[str, Any] = {
    "simplex": {"constraint": "simplex"},
    "rows of a learned sum": {"constraint": {"kind": "simplex", "over": "rows", "scale": 1.5}},
    "log barrier": {"local": {"bregman": "-log(w)"}, "constraint": "simplex"},
}


@pytest.mark.some(1)
@pytest.mark.few
@pytest.mark.parametrize("optimizer", [MUON, {**MUON, "every": 3}, {"every": 3}], ids=str)
@pytest.mark.parametrize("title", CONSTRAINTS)
def test_the_first_memory_is_inside(title: str, optimizer: dict[str, Any]) -> None:
    spec = {"name": "inside", "bias": "l2", "retention": {"decay": "token", **CONSTRAINTS[title]},
            "optimizer": {"rate": "token", **optimizer}}  # fmt: skip
    case = compiled(spec)
    arguments = inputs(case, 7, sizes=ALONE)
    out, states = case.operator(**arguments, output_final_state=True, form="recurrent")
    rest = {n: x for n, x in arguments.items() if n not in "qkv"}
    expected = stated(case.rule.problem, *(arguments[n] for n in "qkv"), rest)
    assert error(out, expected) <= 1e-7
    assert error(out, interpreted(case, arguments)[0]) <= 1e-10
    memory = states["held" if "held" in states else "W"]
    sums = memory.sum(-1 if "rows" in title else (-2, -1))
    torch.testing.assert_close(sums, torch.full_like(sums, 1.5 if "rows" in title else 1.0))


@pytest.mark.some(1)
@pytest.mark.few
@pytest.mark.parametrize("optimizer", [{}, {"every": 3}, {"anchor": {"chunk": 4}}], ids=str)
@pytest.mark.parametrize("kind", ["simplex", {"kind": "ball", "radius": 0.5}], ids=str)
def test_layers_begin_with_the_dual_of_their_first_memory(kind: Any, optimizer: Any) -> None:
    """B_0 = ∇R(W_0), which the constraint has moved, not the parameters themselves."""
    case = compiled({
        "name": "inside", "bias": "l2", "memory": {"kind": "mlp", "expansion": 1},
        "retention": {"decay": "token", "constraint": kind},
        "optimizer": {"rate": "token", **optimizer},
    })  # fmt: skip
    arguments = inputs(case, 6, sizes=ALONE)
    params = beginning(case, arguments["k"], arguments["v"])
    out, _ = case.operator(**arguments, params=params, output_final_state=True, form="recurrent")
    rest = {n: x for n, x in arguments.items() if n not in "qkv"}
    vectors = (arguments[n] for n in "qkv")
    assert error(out, stated(case.rule.problem, *vectors, rest, params)) <= 1e-8
    assert error(out, interpreted(case, arguments, params=params)[0]) <= 1e-10
    if "chunk" in case.forms:
        agree(run(case, arguments, "chunk"), run(case, arguments, "recurrent"), 1e-9)


@pytest.mark.some(1)
@pytest.mark.few
@pytest.mark.parametrize("optimizer", [{}, MUON, {**MUON, "momentum": "token"}], ids=str)
@pytest.mark.parametrize("title", [*CONSTRAINTS, "of logarithms", "a ball"])
def test_the_gradient_sees_a_decayed_memory_inside(title: str, optimizer: dict[str, Any]) -> None:
    """Under ``order: before`` W_ref is the minimiser of the retention around α ∇R(W) alone."""
    more = {"of logarithms": {"local": "kl", "constraint": "simplex"},
            "a ball": {"constraint": {"kind": "ball", "radius": 0.5}}}  # fmt: skip
    retention = {"decay": "token", "order": "before", **{**CONSTRAINTS, **more}[title]}
    spec = {"name": "inside", "bias": "l2", "retention": retention,
            "optimizer": {"rate": "token", **optimizer}}  # fmt: skip
    case = compiled(spec)
    arguments = inputs(case, 6, sizes=ALONE)
    out, _ = case.operator(**arguments, output_final_state=True, form="recurrent")
    rest = {n: x for n, x in arguments.items() if n not in "qkv"}
    assert error(out, stated(case.rule.problem, *(arguments[n] for n in "qkv"), rest)) <= 1e-7
    assert error(out, interpreted(case, arguments)[0]) <= 1e-10


def test_a_learned_sum_under_a_normalised_rate_inside_o() -> None:
    conforms({
        "name": "inside", "bias": {"expr": "-0.1*v*tanh(y)"},
        "retention": {"decay": "learned", "constraint": {"kind": "simplex", "scale": "learned"}},
        "optimizer": {**MUON, "rate": {"from": "input", "normalized": True}, "momentum": 0},
    })  # fmt: skip


MLP = {"memory": {"kind": "mlp", "expansion": 1}}
BEFORE = {"decay": "token", "order": "before"}


@pytest.mark.some(2)
@pytest.mark.few
@pytest.mark.parametrize("retention", [
    {"global": {"l2": 0.7}}, {"global": {"entropy": 0.7}, **BEFORE},
    {"local": "kl", "global": {"l2": 0.7}}, {"local": "kl", "global": {"entropy": 0.7}, **BEFORE},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("memory", [MLP, {}], ids=["layers", "matrix"])
def test_a_global_term_weighs_steps_alone(memory: Any, retention: dict[str, Any]) -> None:
    """Its weight is the rate of a step, which neither W_0 nor a decayed memory has taken."""
    retention = {**retention, "constraint": "simplex"}
    spec = {"name": "weighed", "bias": "l2", "retention": retention, **memory}
    case = compiled({**spec, "optimizer": {"rate": "token"}})
    arguments = inputs(case, 3, sizes=ALONE)
    params = beginning(case, arguments["k"], arguments["v"]) if memory else {}
    out, _ = case.operator(**arguments, params=params, output_final_state=True, form="recurrent")
    rest = {n: x for n, x in arguments.items() if n not in "qkv"}
    vectors = (arguments[n] for n in "qkv")
    assert error(out, stated(case.rule.problem, *vectors, rest, params)) <= 1e-9
    assert error(out, interpreted(case, arguments, params=params)[0]) <= 1e-10


def test_what_one_norm_does_on_a_simplex_is_said() -> None:
    retention = {"constraint": "simplex", "global": {"elastic": {"l1": 0.1, "l2": 0.2}}}
    with pytest.raises(InvalidSpec, match="‖W‖₁ is the sum of the entries") as told:
        compiled({"name": "norms", "bias": "l2", "retention": retention})
    assert told.value.issues[0].hint == "write global: {l2: ...} alone"
