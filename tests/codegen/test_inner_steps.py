"""Several steps a token: decays act in the first alone, coefficients in all, keys are kept once."""

from typing import Any

import pytest
import sympy as sp
from conformance import compiled, inputs, run
from test_own_expressions import conforms

from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.cost_kernels import N, T

Spec = dict[str, Any]

TWICE = {"rate": "token", "inner_steps": 2}
BY_KEY = {"from": "input", "per": "key"}
TURNED = {"decay": {"from": "parameter", "per": "key"}, "phase": BY_KEY}

SPECS: dict[str, Spec] = {
    "a diagonal memory whose rate is its decay's": {
        "memory": "diagonal", "bias": "dot", "retention": TURNED,
        "features": {"expr": "max(x,0.2)"},
        "optimizer": {"rate": {"expr": "sqrt(1 - alpha**2)"}, "inner_steps": 2},
    },
    "a number": {"retention": {"decay": 0.9, "order": "before"}, "optimizer": TWICE},
    "a number, after": {
        "retention": {"decay": 0.9}, "optimizer": {"rate": "token", "micro_steps": 2},
    },
    "of the token": {
        "bias": "dot", "retention": {"decay": {"expr": "1 - 1/(t+2)"}}, "optimizer": TWICE,
    },
    "that may be zero": {"retention": {"decay": {"expr": "1 - eta/2"}}, "optimizer": TWICE},
    "by channel, momentum": {
        "retention": {"decay": {"expr": "1 - a/8"}}, "coefficients": {"a": BY_KEY},
        "optimizer": {**TWICE, "method": "momentum", "momentum": "token"},
    },
    "a residual whose rate is its decay's": {
        "bias": {"expr": "log(cosh(e))"}, "retention": {"decay": "token", "order": "before"},
        "optimizer": {"rate": {"expr": "1 - alpha"}, "micro_steps": 2},
    },
    "of layers": {
        "memory": {"kind": "mlp", "depth": 2, "norm": False}, "retention": {"decay": 0.9},
        "optimizer": TWICE,
    },
}  # fmt: skip
"""Decays that are no arguments, or whose coefficients stand elsewhere too."""

KERNELS: dict[str, Spec] = {
    "plain": {"features": "exponential", "optimizer": TWICE},
    "momentum": {
        "features": {"kernel": "exp(s)", "normalise": "row"}, "retention": {"decay": 0.9},
        "optimizer": {**TWICE, "method": "momentum", "momentum": "token"},
    },
    "without a decay": {
        "features": {"kernel": "exp(s)", "normalise": "row"}, "optimizer": TWICE,
    },
    "micro-steps too": {
        "features": "exponential", "optimizer": {**TWICE, "micro_steps": 2},
    },
}  # fmt: skip


@pytest.mark.some(5)
@pytest.mark.parametrize("name", SPECS)
def test_a_decay_acts_in_a_tokens_first_step_alone(name: str) -> None:
    conforms({"name": "several", "bias": "l2", **SPECS[name]})


@pytest.mark.parametrize("name", KERNELS)
def test_a_key_is_kept_once_however_many_steps_it_takes(name: str) -> None:
    spec = {"name": "several", "bias": "l2", **KERNELS[name]}
    conforms(spec)
    case = compiled(spec)
    states = run(case, inputs(case, 3), "recurrent").states
    micro = case.signature.steps
    assert states["K"].shape[2] == states["U"].shape[2] == 3 * micro
    kept = cost(case.rule).state.subs(N, 2 * micro)
    once = compiled({**spec, "optimizer": {**spec["optimizer"], "inner_steps": 1}})
    shares = case.rule.kernels.normalised and case.rule.decay == 1  # told apart: 2 a key or fewer
    assert sp.expand(kept - cost(once.rule).state.subs(N, micro)) == int(shares) * T
