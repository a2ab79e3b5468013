"""round: gradients pass as if it were not there, wherever it stands; what minimises refuses it."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from conformance import compiled, inputs
from test_own_expressions import conforms

from mnemic.compiler.oracle.verify import verify
from mnemic.errors import InvalidSpec

Spec = Mapping[str, Any]

BASE = {"name": "mine", "bias": "l2", "optimizer": {"rate": "token"}}
CASES: dict[str, Spec] = {
    "a loss": {**BASE, "bias": {"expr": "round(2*e)**2/8"}},
    "a loss without more": {**BASE, "bias": {"expr": "round(e)"}},
    "features": {**BASE, "features": {"expr": "round(3*x)/3"}},
    "an activation": {
        **BASE,
        "memory": {"kind": "mlp", "activation": "round(3*x)/3"},
        "optimizer": {"rate": "token", "anchor": {"chunk": 4}},
    },
}


@pytest.mark.parametrize("name", CASES)
def test_the_rule_is_the_gradient_of_the_problem_as_written(name: str) -> None:
    checks = verify(compiled(CASES[name]).rule)
    assert {check.name for check in checks} >= {"error signal", "slope", "recurrence"}
    assert all(check.passed for check in checks), checks


@pytest.mark.parametrize("name", CASES)
def test_forms_run_and_agree(name: str) -> None:
    conforms(CASES[name])


def test_a_rounded_loss_by_hand() -> None:
    """W ← W − η round(2 e)/2 kᵀ, token after token."""
    case = compiled(CASES["a loss"])
    x = inputs(case, 7)
    memory = torch.zeros(*x["v"].shape[::2], x["v"].shape[-1], x["k"].shape[-1]).double()
    found = []
    for t in range(7):
        k, v, q = (x[name][:, t] for name in "kvq")
        error = torch.einsum("bhvk,bhk->bhv", memory, k) - v
        rate = x["eta"][:, t, :, None, None]
        memory = memory - rate * torch.einsum("bhv,bhk->bhvk", torch.round(2 * error) / 2, k)
        found.append(torch.einsum("bhvk,bhk->bhv", memory, q))
    out, _ = case.operator(**x)
    assert float((out - torch.stack(found, 1)).abs().max()) <= 1e-12


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"retention": {"local": {"bregman": "w**2/2 + round(w)/8"}}}, "not convex"),
        ({"optimizer": {"method": "implicit", "rate": "token"}}, "between the jumps of round"),
        (
            {"optimizer": "exact", "retention": {"global": {"l2": 0.5}}},
            "between the jumps of round",
        ),
    ],
)
def test_what_minimises_refuses_it(entries: Spec, words: str) -> None:
    bias = {} if "optimizer" not in entries else {"bias": {"expr": "round(e)**2/2"}}
    with pytest.raises(InvalidSpec, match=words):
        compiled({**BASE, **bias, **entries})
