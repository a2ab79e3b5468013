"""Decays that are expressions of which no sign is known: their logarithm is taken all the same.

The rule's interpreter multiplies by the decay itself and knows no logarithm.
"""

from typing import Any

import pytest
from conformance import Sizes, compiled, error, inputs, run
from test_own_expressions import conforms

from mnemic.compiler.oracle.stated import stated

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
