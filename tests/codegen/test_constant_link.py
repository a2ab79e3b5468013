"""A link that only multiplies by a number: the memory is the state, and the number is in its step.

Outputs are held against the update written by hand in float64, and against the problem as written.
"""

from typing import Any

import pytest
import torch
from test_own_expressions import compared

from mnemic import pipeline
from mnemic.compiler.compare.diff import diff
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.verify import verify
from mnemic.compiler.rule import Rule

TOKEN = {"rate": "token"}
HALF = {"local": {"bregman": "w**2"}}
TWICE = {"view": "ftrl", "link": "2*a"}
MOMENTUM = {**TOKEN, "method": "momentum", "momentum": "token"}
ON_WRITE = {**MOMENTUM, "momentum": {"from": "input", "on": "write"}}

LINKS: dict[str, tuple[dict[str, Any], float]] = {
    "a generator": (HALF, 0.5),
    "a stated link": (TWICE, 2.0),
    "a leader's ridge": ({"view": "ftrl", "global": {"l2": 1}}, 0.5),
    "a falling link": ({"view": "ftrl", "link": "-a/2"}, -0.5),
    "a root": ({"view": "ftrl", "link": "sqrt(2)*a"}, 2.0**0.5),
}


def rule(**entries: Any) -> Rule:
    return pipeline.derive({"name": "own", "bias": "l2", "optimizer": TOKEN, **entries})


@pytest.mark.parametrize("link", LINKS)
def test_it_is_the_delta_rule_at_a_multiple_of_the_rate(link: str) -> None:
    retention, factor = LINKS[link]
    found = rule(retention=retention)
    assert (found.structure.kind, found.structure.forms) == ("affine", ("recurrent", "chunk"))
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 7, 1, 3, dtype=torch.float64) / 2 for _ in range(3))
    eta = torch.rand(1, 7, 1, dtype=torch.float64)
    told, state = interpret(found, q, k, v, {"eta": eta})
    memory = torch.zeros(3, 3, dtype=torch.float64)
    for t in range(7):
        error = memory @ k[0, t, 0] - v[0, t, 0]
        memory = memory - factor * eta[0, t, 0] * torch.outer(error, k[0, t, 0])
        torch.testing.assert_close(told[0, t, 0], memory @ q[0, t, 0])
    assert state.keys() == {"W", "position"}
    torch.testing.assert_close(state["W"][0, 0], memory)


@pytest.mark.parametrize("link", ["a generator", "a stated link", "a leader's ridge"])
def test_the_delta_rule_is_found_in_it(link: str) -> None:
    retention, factor = LINKS[link]
    told = str(diff(rule(retention=retention), rule()))
    assert f"A is B with η′ = {'η/2' if factor < 1 else '2·η'};" in told


SPECS: dict[str, dict[str, Any]] = {
    "a generator": {"retention": HALF},
    "a stated link": {"retention": TWICE},
    "a root": {"retention": {"view": "ftrl", "link": "sqrt(2)*a"}},
    "a decay before the step": {"retention": {**TWICE, "decay": "token", "order": "before"}},
    "a ridge": {"retention": {**HALF, "global": {"l2": 0.7}}},
    "a ridge and momentum": {
        "retention": {**HALF, "global": {"l2": 0.7}}, "optimizer": MOMENTUM},
    "momentum on the write": {"retention": {**HALF, "decay": "token"}, "optimizer": ON_WRITE},
    "a ridge, momentum on the write": {
        "retention": {"global": {"l2": 0.5}}, "optimizer": ON_WRITE},
    "momentum, decays by channel": {
        "retention": {**HALF, "decay": "channel", "order": "before"}, "optimizer": MOMENTUM},
    "decays by row": {"retention": {**HALF, "decay": {"from": "input", "per": "value"}}},
    "a window": {"retention": HALF, "window": 3, "optimizer": MOMENTUM},
    "an anchor": {"retention": TWICE, "optimizer": {**TOKEN, "anchor": {"chunk": 3}}},
    "inner steps": {"retention": HALF, "optimizer": {**TOKEN, "inner_steps": 2}},
    "implicit steps": {"retention": HALF, "optimizer": {**TOKEN, "method": "implicit"}},
    "a normalised rate": {
        "retention": TWICE, "optimizer": {"rate": {"from": "input", "normalized": True}}},
    "normalised, with momentum": {
        "retention": TWICE,
        "optimizer": {**MOMENTUM, "rate": {"from": "input", "normalized": True}}},
    "levels": {"retention": {**TWICE, "decay": "token"}, "readout": {"levels": "token"}},
    "another loss": {"bias": {"expr": "log(cosh(e))"}, "retention": HALF},
    "a diagonal": {"retention": TWICE, "memory": "diagonal"},
    "an optimizer by entry": {"retention": HALF, "optimizer": {**TOKEN, "method": "adam"}},
    "layers": {"retention": HALF, "memory": "mlp"},
}  # fmt: skip


@pytest.mark.parametrize("named", SPECS)
def test_every_form_is_the_problem_as_written(named: str) -> None:
    spec = {"name": "own", "bias": "l2", "optimizer": TOKEN, **SPECS[named]}
    for check in verify(pipeline.derive(spec)):
        assert check.passed, check
    assert compared(spec)


def test_its_bound_has_the_factor() -> None:
    told = stability(rule(retention=TWICE, optimizer={"rate": 0.9})).bound
    assert told is not None
    size = told.lhs.subs({s: 1 for s in told.lhs.free_symbols})
    assert (float(size), float(told.rhs)) == (1.8, 2)
    fast = {"rate": {"from": "input", "activation": "1.1*sigmoid(x)"}}
    assert stability(rule(retention=TWICE, optimizer=fast)).place == "outside"
    momentum = {**fast, "method": "momentum", "momentum": 0.5}
    assert stability(rule(retention=TWICE, optimizer=momentum)).place == "inside"
