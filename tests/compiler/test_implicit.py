"""Implicit steps without a closed form: derived, told, checked for convexity, compared."""

from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from scipy.optimize import minimize

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.verdict import judge
from mnemic.compiler.convexity import falls
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.render import to_text
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.implicit import NewErrorBase, new_error, roots_of
from mnemic.compiler.oracle import verify_error
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.verify import verify
from mnemic.compiler.rule import Rule
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec


def rule(loss: Any, **more: Any) -> Rule:
    bias = {"expr": loss} if isinstance(loss, str) else loss
    optimizer = {"method": "implicit", "rate": "token", **more.pop("optimizer", {})}
    return derive_spec(load({"name": "mine", "bias": bias, "optimizer": optimizer, **more}))


SMOOTH = ("log(cosh(e)) + e**4/8", "exp(e)-e-1", "exp(y)-v*y", "log(cosh(n))")
KINKED = ("max(7*e/10, -3*e/10)", "n + n**2/2")


@pytest.mark.some(2)
@pytest.mark.parametrize("loss", SMOOTH)
def test_the_step_is_the_minimiser_of_the_problem_as_written(loss: str) -> None:
    found = rule(loss)
    assert roots_of(found.error.signal)
    wrong = [check for check in verify(found) if not check.passed]
    assert not wrong, wrong


@pytest.mark.some(1)
@pytest.mark.parametrize("loss", KINKED)
def test_a_kink_is_where_a_bisection_of_the_objective_finds_it(loss: str) -> None:
    assert verify_error.step(rule(loss)) < 1e-12
    assert verify_error.slope(rule(loss)) < 1e-12
    kept = {"local": {"bregman": "2*w**2"}, "global": {"l2": 0 if "n" in loss else 0.3}}
    assert verify_error.step(rule(loss, retention=kept)) < 1e-12


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "more",
    [
        {"memory": "diagonal", "retention": {"decay": "token"}},
        {"weights": "token", "features": "relu"},
        {"features": "relu", "retention": {"local": {"bregman": "3*w**2"}}},
        {"retention": {"global": {"l2": "token"}}},
        {"retention": {"global": {"l2": 0.4}}, "weights": "token", "bias": {"kind": "l2"}},
        {"retention": {"global": {"l2": 0.3}, "view": "ftrl"}},
        {"coefficients": {"a": "token"}, "bias": {"expr": "log(cosh(e)) + a*e**4"}},
    ],
)
def test_beside_the_other_axes(more: dict[str, Any]) -> None:
    found = rule(more.pop("bias", {"expr": "exp(e)-e-1"}), **more)
    assert roots_of(found.error.signal) or found.error.affine
    assert all(check.passed for check in verify(found))


LOSSES = {
    "e**2/2": lambda e: e @ e / 2,
    "log(cosh(e))": lambda e: np.log(np.cosh(e)).sum(),
    "exp(e) - e - 1": lambda e: (np.exp(e) - e - 1).sum(),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("retention", "local", "penalty"),
    [({"global": {"l2": 0.7}}, 0.5, 0.35), ({"local": {"bregman": "2*w**2"}}, 2.0, 0.0),
     ({"global": {"l2": 0.7}, "local": {"bregman": "2*w**2"}}, 2.0, 0.35)],
)  # fmt: skip
def test_beside_a_sum_of_squares_the_step_is_the_minimum_of_both(
    loss: str, retention: dict[str, Any], local: float, penalty: float
) -> None:
    """W = argmin δ ℓ(Wk − v) + local ‖W − W′‖² + δ penalty ‖W‖², by SciPy, token by token."""
    chance = np.random.default_rng(0)
    found = rule(loss, retention=retention)
    k, v = chance.normal(size=(3, 4)), chance.normal(size=(3, 2))
    delta, w, told = chance.uniform(0.5, 2, 3), np.zeros((2, 4)), []
    for t in range(3):
        past = w

        def objective(flat: Any, t: int = t, past: Any = past) -> float:
            now = flat.reshape(2, 4)
            loss_at = LOSSES[loss](now @ k[t] - v[t])
            kept = local * ((now - past) ** 2).sum()
            return float(delta[t] * (loss_at + penalty * (now**2).sum()) + kept)

        flat = minimize(objective, past.ravel(), method="BFGS", options={"gtol": 1e-9}).x
        w = flat.reshape(2, 4)
        told.append(w @ k[t])
    given = [torch.tensor(x)[None, :, None] for x in (k, k, v)]
    y, _ = interpret(found, *given, {"delta": torch.tensor(delta)[None, :, None]})
    assert np.abs(y[0, :, 0].numpy() - np.stack(told)).max() < 1e-5


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        ({"global": {"elastic": {"l1": 0.1, "l2": 0.2}}}, "solves the loss and the retention"),
        ({"local": {"bregman": "cosh(w)"}}, "solves the loss and the retention together"),
        ({"constraint": {"kind": "ball", "radius": 0.3}}, "solves the loss and the retention"),
        ({"global": {"l2": 0.3}}, "an infinite rate beside a global term"),
    ],
)
def test_a_retention_that_couples_with_the_step_is_refused(
    retention: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidSpec, match=words) as caught:
        rule({"kind": "l2"}, retention=retention,
             optimizer={"rate": float("inf") if "infinite" in words else "token"})  # fmt: skip
    assert caught.value.issues[0].where.endswith("optimizer.method")


def test_beside_a_global_term_a_radial_loss_and_a_flow_are_refused() -> None:
    retention = {"global": {"l2": 0.3}}
    with pytest.raises(InvalidSpec, match="no longer on ‖ŷ − v‖ alone"):
        rule("log(cosh(n))", retention=retention)
    with pytest.raises(InvalidSpec, match="a retention would flow with it"):
        rule({"kind": "l2"}, retention=retention, optimizer={"method": "flow"})


@pytest.mark.parametrize("loss", ["l2", "-y*v", "exp(v)*e**2"])
def test_a_closed_form_is_taken_where_there_is_one(loss: str) -> None:
    found = rule({"kind": loss} if loss == "l2" else loss)
    assert not roots_of(found.error.signal)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [("l2", "affine"), ("log(cosh(e))", "residual"), ("exp(y)-v*y", "residual")],
)
def test_the_class_and_the_bound(loss: str, kind: str) -> None:
    found = rule({"kind": loss} if loss == "l2" else loss)
    assert found.structure.kind == kind
    assert stability(found).place == "inside"


def test_the_derivation_prints_the_root() -> None:
    text = to_text(rule("log(cosh(e)) + e**4/8"))
    assert "eₜ = root[s = tanh(u) + u³/2, u = (ŷ − v) − δₜ·‖φ‖²·s]" in text
    assert "a root without a closed form" in text
    assert "slope: (1 + 3·u²/2 − tanh(u)²)/(1 + δₜ·‖φ‖²·(1 + 3·u²/2 − tanh(u)²)) with s = " in text


def test_the_limit_goes_to_the_minimiser() -> None:
    """NLMS whatever the loss, where its minimum is at ŷ = v; else its own minimum."""
    endless = {"optimizer": {"rate": float("inf")}}
    for loss in ("log(cosh(e)) + e**4/8", "exp(e)-e-1", "n**3", "abs(e)"):
        found = rule(loss, **endless)
        assert sp.simplify(found.error.signal - (sym.y - sym.v) / sym.kappa) == 0
    other = rule("exp(y) - 2*y", **endless)
    assert sp.simplify(other.error.signal - (sym.y - sp.log(2)) / sym.kappa) == 0
    with pytest.raises(InvalidSpec, match="no one closed form here: give a finite rate"):
        rule("exp(y) + y**2 - v*y", **endless)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("1-exp(-e**2/2)", "the loss is not convex"),
        ("log(1+n**2)", "not convex .* near ‖ŷ − v‖"),
        ("-v*tanh(y)", "not convex"),
        ("-e**2", "not convex"),
        ("where(n<=1,e**2/2,abs(e))", "couples the coordinates"),
        ("where(e>0, e, -e/2) - e", "not convex"),
    ],
)
def test_what_has_no_one_implicit_step_is_refused(loss: str, words: str) -> None:
    if loss.startswith("where(e>0"):  # a tilted pinball is convex whatever its tilt
        assert roots_of(rule(loss).error.signal)
        return
    with pytest.raises(InvalidSpec, match=words):
        rule(loss)


@pytest.mark.parametrize(("activation", "convex"), [("sigmoid", True), ("tanh", False)])
def test_coefficients_are_looked_at_over_their_activation(activation: str, convex: bool) -> None:
    entry = {"coefficients": {"a": {"from": "input", "activation": activation}}}
    if convex:
        assert roots_of(rule("log(cosh(e)) + a*e**4", **entry).error.signal)
    else:
        with pytest.raises(InvalidSpec, match="not convex"):
            rule("log(cosh(e)) + a*e**4", **entry)


def test_a_fall_is_found_where_it_is() -> None:
    assert falls(sp.tanh(sym.y - sym.v)) is None
    assert falls(sp.sign(sym.y - sym.v)) is None
    place = falls(sym.e.subs(sym.e, sym.y) - sym.y**3 / 10)
    assert place is not None
    assert abs(place[0]) > 1


def root() -> NewErrorBase:
    c, a = sym.coefficient("c"), sym.coefficient("a")
    return new_error(sp.tanh(sym.e) + a * sym.e**3, sym.e, sym.y, c, steepest=sp.oo)


def test_derivatives_of_the_root_against_differences() -> None:
    """All of them, with numbers from the bisection of the oracle."""
    found, c, a = root(), sym.coefficient("c"), sym.coefficient("a")
    at = {sym.y: 1.3, c: 0.4, a: 0.7}
    point = {s: torch.tensor(x, dtype=torch.float64) for s, x in at.items()}
    for symbol in at:
        up, down = ({**point, symbol: point[symbol] + h} for h in (1e-6, -1e-6))
        numeric = (evaluate(found, up) - evaluate(found, down)) / 2e-6
        exact = evaluate(sp.diff(found, symbol), point)
        assert abs(float(numeric - exact)) < 1e-8, symbol


def test_functions_are_told_apart_by_their_mathematics() -> None:
    plain = rule("log(cosh(e)) + e**4/8")
    assert judge(plain, rule("e**4/8 + log(exp(e) + exp(-e))")).kind == "equal"
    assert judge(plain, rule("log(cosh(e)) + e**4/4")).kind == "different"
