"""Second-order rules that no spec lists: ridges, gates and solvers in every combination."""

import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from conformance import Tensors, agree, compiled, error, inputs, interpreted, run
from test_own_expressions import conforms

from mnemic.compiler.oracle.verify import verify
from mnemic.errors import InvalidSpec

LEARNED = {"from": "parameter", "per": "key", "activation": "0.1 + softplus(x)", "init": 1.0}
ITERATED = {"kind": "conjugate-gradients", "tolerance": 1e-12, "iterations": 60}
STAYS = {"kind": "geometric", "ridge": "constant"}
DESCENT = {"method": "batch", "inner_steps": 3, "from": "origin", "rate": 0.1}
EXACT = {"method": "exact"}

Spec = Mapping[str, Any]


def spec(ridge: Any, optimizer: Spec, **more: Any) -> dict[str, Any]:
    """Least squares over all pairs."""
    base = {"mnemic": 1, "name": "regression", "bias": "l2", "window": "all"}
    retention = {"view": "ftrl", "global": {"l2": ridge}} if ridge else {"view": "ftrl"}
    return {**base, "retention": retention, "optimizer": optimizer, **more}


CASES: dict[str, dict[str, Any]] = {
    "gated with a learned ridge that stays": spec(
        LEARNED, {"method": "exact", "rate": "token", "solver": ITERATED}, weights=STAYS
    ),
    "the same, solved directly": spec(LEARNED, {"method": "exact", "rate": "token"}, weights=STAYS),
    "a ridge of the input": spec("token", {"method": "exact", "solver": ITERATED}, weights=STAYS),
    "a number that stays": spec(0.5, {"method": "exact", "solver": ITERATED}, weights=STAYS),
    "a number that is forgotten, iterated": spec(
        0.5, {"method": "exact", "solver": ITERATED}, weights="geometric"
    ),
    "iterated without forgetting": spec(0.5, {"method": "exact", "solver": ITERATED}),
    "a learned ridge without forgetting": spec("learned", EXACT),
    "gated pairs in a carried inverse": spec(
        0.5, {"method": "exact", "rate": "token"}, weights="geometric"
    ),
    "weighed pairs": spec(0.5, EXACT, weights="token"),
    "features": spec(
        0.5, {"method": "exact", "solver": ITERATED}, weights=STAYS,
        features={"kind": "polynomial", "degree": 2},
    ),
    "a regression a channel": spec(
        LEARNED, {"method": "exact", "rate": "token", "solver": ITERATED}, weights=STAYS,
        memory="diagonal",
    ),
    "descent on weighed pairs": spec(None, DESCENT, weights="token"),
    "descent with a ridge": spec(0.5, DESCENT),
    "descent with a ridge that is forgotten": spec(0.5, DESCENT, weights="geometric"),
    "descent with a learned ridge that stays": spec(LEARNED, DESCENT, weights=STAYS),
    "a loss by a number": {**spec(0.5, EXACT), "bias": {"expr": "3*e**2/2"}},
    "the square, iterated": {
        **spec(LEARNED, {"method": "exact", "rate": "token", "solver": ITERATED}, weights=STAYS),
        "bias": {"kind": "lp", "p": 2},
    },
    "descent on the square": {
        **spec(LEARNED, DESCENT, weights=STAYS), "bias": {"expr": "e**2"},
    },
    "one step on the square": {
        **spec(None, {**DESCENT, "inner_steps": 1}), "bias": {"expr": "e**2"},
    },
}  # fmt: skip


@pytest.mark.some(10)
@pytest.mark.parametrize("name", CASES)
def test_forms_and_interpreter_agree(name: str) -> None:
    conforms(CASES[name], 1e-9)


@pytest.mark.some(10)
@pytest.mark.parametrize("name", CASES)
def test_the_rule_solves_the_problem_as_written(name: str) -> None:
    checks = verify(compiled(CASES[name]).rule)
    assert "recurrence" in {check.name for check in checks}
    assert all(check.passed for check in checks), checks


def mesa(x: Tensors) -> torch.Tensor:
    """U_t (H_t + Diag(λ))⁻¹ q_t as the paper has it, one token and head after another."""
    batch, length, heads, size = x["k"].shape
    out = torch.zeros_like(x["v"])
    for b in range(batch):
        for h in range(heads):
            second = torch.zeros(size, size, dtype=torch.float64)
            cross = torch.zeros(x["v"].shape[-1], size, dtype=torch.float64)
            for t in range(length):
                k, v, gamma = x["k"][b, t, h], x["v"][b, t, h], x["log_gamma"][b, t, h].exp()
                second = gamma * second + torch.outer(k, k)
                cross = gamma * cross + torch.outer(v, k)
                whole = second + torch.diag(x["lam"][b, t, h])
                out[b, t, h] = cross @ torch.linalg.solve(whole, x["q"][b, t, h])
    return out


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("strong", [False, True])
def test_mesa_is_a_loop_of_solves(form: str, strong: bool) -> None:
    """With gates down to e^-8, under which a carried inverse would lose its digits."""
    case = compiled("mesa")
    x = inputs(case, 70)
    if strong:
        x["log_gamma"] = 160 * x["log_gamma"]
    out, _ = case.operator(**x, form=form)
    assert error(out, mesa(x)) <= 1e-10


def test_mesa_with_a_gate_that_closes() -> None:
    """A pair of weight zero changes nothing, and its gradients are numbers."""
    case = compiled(CASES["gated with a learned ridge that stays"])
    x = inputs(case, 9)
    x["eta"][:, 4] = 0
    found = run(case, x, "chunk")
    agree(found, run(case, x, "recurrent"))
    kept = {n: torch.cat([y[:, :4], y[:, 5:]], 1) for n, y in x.items()}
    kept["log_gamma"][:, 4] += x["log_gamma"][:, 4]
    shorter, _ = case.operator(**kept, form="chunk")
    assert error(found.out[:, 5:], shorter[:, 4:]) <= 1e-10
    assert all(torch.isfinite(y).all() for _, y in found.parts())


def test_float32_meets_the_tolerance_of_its_roundings() -> None:
    """A tolerance of 1e-12 means some roundings in float32, without a warning."""
    case = compiled("mesa")
    x = inputs(case, 100)
    exact, _ = case.operator(**x, form="recurrent")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out, _ = case.operator(**{n: y.float() for n, y in x.items()}, form="chunk")
    assert error(out, exact) <= 2e-5


def test_a_learned_ridge_that_is_forgotten_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"ridge: constant\} it may be learned"):
        compiled(spec("learned", EXACT, weights="geometric"))


def test_a_ridge_a_channel_is_for_solvers() -> None:
    with pytest.raises(InvalidSpec, match="cannot have one value per key here"):
        compiled({**spec(LEARNED, {"method": "gd"}), "window": 1})


def test_interpreted_from_a_state() -> None:
    """The second half of a sequence from the state of the first."""
    case = compiled("mesa")
    x = inputs(case, 12)
    whole, _ = interpreted(case, x)
    first, second = ({n: y[:, s] for n, y in x.items()} for s in (slice(7), slice(7, None)))
    _, state = case.operator(**first, output_final_state=True)
    for form in case.forms:
        out, _ = case.operator(**second, form=form, initial_state=state)
        assert error(out, whole[:, 7:]) <= 1e-9


@pytest.mark.parametrize("method", [EXACT, DESCENT])
@pytest.mark.parametrize("loss", ["e**2/2 - v*y", "e**2/2 + y**2/8", "-e**2", "c*e**2"])
def test_other_quadratic_losses_are_refused_as_such(loss: str, method: Spec) -> None:
    named = {"coefficients": {"c": "token"}} if "c*" in loss else {}
    with pytest.raises(InvalidSpec, match="a number c > 0 only"):
        compiled({**spec(0.5, method, **named), "bias": {"expr": loss}})


def test_a_loss_of_the_predictions_size_has_gradients_at_zero() -> None:
    """|ŷ| has the slope sign(ŷ): no quotient whose gradient is 0/0 where a memory is empty."""
    case = compiled({
        "mnemic": 1, "name": "own", "bias": {"expr": "abs(y) - v*y + y**2/8"},
        "optimizer": {"rate": "token"},
    })  # fmt: skip
    for form in case.forms:
        result = run(case, inputs(case, 5), form)
        assert all(bool(torch.isfinite(x).all()) for _, x in result.parts())
