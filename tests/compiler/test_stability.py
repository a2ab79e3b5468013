"""The bound on a step, against the spectral radius of the recurrence that it speaks of."""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.stability import limit, stability, warnings
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec


def rule(**entries: Any) -> Rule:
    return derive_spec(Spec.model_validate({"name": "mine", "bias": "l2", **entries}))


def test_the_delta_rule_contracts_below_two() -> None:
    found = stability(rule(optimizer={"rate": "token"}))
    assert found.bound == sp.Lt(sym.coefficient("eta") * sym.kappa, 2)
    assert found.inside is True
    assert "ηₜ·‖φ‖² < 2" in found.sentence


def test_heavy_ball_momentum_has_its_own_bound() -> None:
    momentum = {"method": "momentum", "momentum": "token", "rate": "token"}
    theta = sym.coefficient("theta")
    assert sp.expand(limit(rule(optimizer=momentum)) - 2 * (1 + theta)) == 0


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize(("alpha", "theta"), [(1, 0), (0.6, 0), (1, 0.5), (0.8, 0.9)])
def test_the_bound_is_where_the_spectral_radius_reaches_one(
    order: str, alpha: float, theta: float
) -> None:
    """Along a key that repeats, (A, S) goes by a 2 × 2 matrix; κ = 1."""
    method = {"method": "momentum", "momentum": "token", "rate": "token"}
    found = stability(rule(retention={"decay": "token", "order": order}, optimizer=method))
    assert found.bound is not None
    point = {sym.coefficient("alpha"): alpha, sym.coefficient("theta"): theta, sym.kappa: 1}
    eta = sym.coefficient("eta")
    edge = float(sp.solve((found.bound.lhs - found.bound.rhs).subs(point), eta)[0])
    seen = alpha if order == "before" else 1

    def radius(rate: float) -> float:
        step = -rate * seen
        matrix = sp.Matrix([[alpha + step, theta], [step, theta]])
        return max(abs(complex(value)) for value in matrix.eigenvals())

    assert radius(edge) == pytest.approx(1, abs=1e-6)
    assert radius(edge * 0.999) < 1 < radius(edge * 1.001)


def test_a_loss_whose_curvature_grows_asks_for_a_normalised_rate() -> None:
    cubic = rule(bias={"kind": "lp", "p": 3}, optimizer={"rate": "token"})
    assert stability(cubic).kind == "unbounded"
    assert any("normalized: true" in line for line in warnings(cubic))
    tamed = rule(
        bias={"kind": "lp", "p": 3}, optimizer={"rate": {"from": "input", "normalized": True}}
    )
    assert stability(tamed).kind == "always"
    assert not warnings(tamed)


def test_a_kink_is_no_growth() -> None:
    signs = rule(bias={"kind": "lp", "p": 1}, optimizer={"rate": "token"})
    assert stability(signs).kind == "kink"
    assert stability(signs).bound is None
    robust = stability(rule(bias={"kind": "robust", "Delta": 0.1}, optimizer={"rate": "token"}))
    assert robust.bound == sp.Lt(sym.coefficient("eta") * sym.kappa, 2)


def test_activations_are_checked_against_the_bound() -> None:
    loose = rule(optimizer={"rate": {"from": "input", "activation": "softplus"}})
    assert stability(loose).inside is False
    assert len(warnings(loose)) == 1
    wide = rule(optimizer={"rate": {"from": "input", "activation": "2*sigmoid(x)"}})
    assert stability(wide).inside is True


def test_windows_add_up() -> None:
    def windowed(activation: str) -> Rule:
        gamma = {"from": "input", "activation": activation}
        return rule(window=4, weights={"kind": "window", "gamma": gamma})

    assert stability(windowed("sigmoid(x)/2")).inside is True
    assert stability(windowed("sigmoid")).inside is False


def test_steps_without_a_size_are_always_stable() -> None:
    assert stability(rule(bias="dot")).kind == "always"
    ridge = {"view": "ftrl", "global": {"l2": 0.5}}
    assert stability(rule(window="all", retention=ridge, optimizer="exact")).kind == "always"
    implicit = stability(rule(optimizer={"method": "implicit", "rate": "token"}))
    assert implicit.inside is True


def test_a_link_scales_the_bound_by_its_slope() -> None:
    sigmoid = rule(
        retention={"local": {"bregman": "w*log(w) + (1-w)*log(1-w)"}}, optimizer={"rate": "token"}
    )
    assert stability(sigmoid).bound == sp.Lt(sym.coefficient("eta") * sym.kappa / 4, 2)
