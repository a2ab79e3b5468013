"""Decays that are expressions of which no sign is known: their logarithm is taken all the same.

The rule's interpreter multiplies by the decay itself and knows no logarithm.
"""

import math
from typing import Any

import pytest
import sympy as sp
from conformance import Sizes, compiled, error, inputs, run
from test_own_expressions import conforms

from mnemic.compiler import symbols as sym
from mnemic.compiler.bounds import preimage
from mnemic.compiler.oracle.stated import stated
from mnemic.dsl.ranges import ANY, DECAY

GATE: dict[str, Any] = {"from": "input", "activation": "sigmoid"}
FADING = ["sqrt(a)", "1 - a/2", "a*(1 - a)"]
RIDGE: dict[str, Any] = {"global": {"l2": 1.0}}
PAIRS: dict[str, Any] = {
    "bias": "l2", "window": "all", "weights": "similarity", "optimizer": "nonparametric",
    "retention": {"decay": {"expr": "sqrt(a)"}},
}  # fmt: skip
SPECS: dict[str, dict[str, Any]] = {
    "an exponential rate": {
        "bias": "dot", "retention": {"decay": {"expr": "sqrt(a)"}},
        "optimizer": {"rate": {"from": "input", "activation": "exp"}},
    },
    "the same under an anchor": {
        "bias": "dot", "retention": {"decay": {"expr": "1 - a"}},
        "optimizer": {"rate": {"from": "input", "activation": "exp"}, "anchor": {"chunk": 8}},
    },
    "kept pairs": {**PAIRS, "memory": {"kind": "nonparametric", "similarity": "exp(s)"}},
    "lines through kept pairs": {
        **PAIRS, "memory": {"kind": "nonparametric", "similarity": "exp(s)", "degree": 1},
    },
    "value channels": {
        "bias": "dot", "coefficients": {"a": {**GATE, "per": "value"}},
        "retention": {"decay": "outer", "row_decay": {"expr": "1 - a/2"}},
    },
}  # fmt: skip


@pytest.mark.parametrize("title", SPECS)
def test_forms_are_the_interpreted_rule(title: str) -> None:
    conforms({"name": "own", "coefficients": {"a": GATE}, **SPECS[title]})


WAYS: dict[str, dict[str, Any]] = {
    "a ridge that is forgotten": {},
    "a ridge that stays": {"weights": {"ridge": "constant"}},
    "steps of all pairs": {
        "retention": {},
        "optimizer": {"method": "batch", "from": "origin", "rate": 0.1, "inner_steps": 2},
    },
}  # fmt: skip


@pytest.mark.few
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fading", FADING)
def test_weights_of_the_past_fade_by_an_expression(fading: str, way: str) -> None:
    """They were once left out where the expression's sign was not known, in every form."""
    told = {"retention": RIDGE, "optimizer": "exact", **WAYS[way]}
    told["weights"] = {"kind": "geometric", "gamma": {"expr": fading}, **told.get("weights", {})}
    case = compiled(
        {"name": "own", "bias": "l2", "window": "all", "coefficients": {"a": GATE}, **told}
    )
    arguments = inputs(case, 9, sizes=Sizes(1, 9, 1, 3, 3))
    vectors = [arguments[name] for name in "qkv"]
    rest = {n: x for n, x in arguments.items() if n not in "qkv"}
    expected = stated(case.rule.problem, *vectors, rest)
    for form in case.forms:
        assert error(run(case, arguments, form).out, expected) < 1e-10


G: dict[str, Any] = {"g": "token"}
OWN: dict[str, dict[str, Any]] = {
    "a decay": {"retention": {"decay": "exp(-softplus(g))", "order": "before"}},
    "a decay of another": {
        "coefficients": {**G, "a": "softplus(g)/4"},
        "retention": {"decay": "exp(-a)", "order": "before"},
    },
    "a decay whose inverse leaves its domain": {"retention": {"decay": "1 - erf(g)**2/2"}},
    "a rate": {"optimizer": {"rate": "softplus(g)/8"}},
    "a momentum": {
        "optimizer": {"method": "momentum", "rate": "token", "momentum": "exp(logsigmoid(g)/16)"}
    },
    "a threshold": {"bias": {"kind": "huber", "delta": "softplus(g)"}},
    "a radius": {"retention": {"constraint": {"kind": "ball", "radius": "softplus(g)"}}},
}


@pytest.mark.parametrize("title", OWN)
def test_functions_that_sympy_lacks_may_stand_in_coefficients(title: str) -> None:
    conforms({"name": "own", "bias": "l2", "coefficients": G, "optimizer": {"rate": "token"},
              **OWN[title]})  # fmt: skip


def test_the_range_of_an_argument_of_such_a_function() -> None:
    """0 < 1 − softplus(a)/4 where a < log(exp(4) − 1); erf is never as large as two."""
    a = sym.coefficient("a")
    found = preimage(1 - sym.softplus(a) / 4, a, DECAY, 0.5)
    assert (found.low, found.open_high) == (-math.inf, True)
    assert found.high == pytest.approx(math.log(math.exp(4) - 1))
    assert preimage(1 - sp.erf(a) ** 2 / 2, a, DECAY, 0.5) == ANY
