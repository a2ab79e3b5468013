"""Costs against the formulas of the literature, and feature sizes against counting."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from typing import Any

import pytest
import sympy as sp

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.cost_symbols import B, C, D, K, N, T, V
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec

TOKEN = {"optimizer": {"rate": "token"}}


def rule(**entries: Any) -> Rule:
    return derive_spec(Spec.model_validate({"name": "mine", **entries}))


def test_additive_and_affine_follow_the_known_formulas() -> None:
    assert cost(rule()).train_flops == sp.expand(4 * D * V + 2 * B * (D + V))
    assert cost(rule(bias="l2", **TOKEN)).train_flops == sp.expand(6 * D * V + 4 * B * (D + V))


def test_micro_steps_cost_the_delta_part_each() -> None:
    many = cost(rule(bias="l2", optimizer={"rate": "token", "micro_steps": 3}))
    delta = 4 * D * V + 4 * B * (D + V)
    assert many.train_flops == sp.expand(N * delta + 2 * D * V)
    assert dict(many.fixed)["n"] == 3


def test_state_counts_what_is_carried() -> None:
    plain = rule(bias="l2", **TOKEN)
    assert cost(plain).state == D * V
    assert cost(rule(memory="diagonal")).state == D
    momentum = {"method": "momentum", "momentum": "token"}
    assert cost(rule(bias="l2", optimizer=momentum)).state == 2 * D * V
    window = cost(rule(window=4, weights="window"))
    assert sp.expand(window.state - D * V - (C - 1) * (K + V)) == 0
    assert sp.expand(cost(rule(window=4, weights="token")).state - window.state) == C - 1
    ridge = {"view": "ftrl", "global": {"l2": 0.5}}
    exact = cost(rule(bias="l2", window="all", retention=ridge, optimizer="exact"))
    assert exact.state == D**2 + D * V
    assert cost(rule(readout={"normalizer": "sum"})).state == D * V + D


def test_kept_pairs_grow_with_the_text() -> None:
    kept = cost(rule(features="exponential"))
    assert kept.state == sp.expand(T * (K + V))
    values = kept.evaluate(T=1000, d_k=8, d_v=8)
    assert values["state"] == 16000
    assert values["decode_flops"] == 32000
    delta = cost(rule(features="exponential", bias="l2", **TOKEN))
    assert delta.train_flops == 2 * kept.train_flops


@pytest.mark.parametrize(
    ("features", "count"),
    [
        ("identity", 5),
        ("relu", 5),
        ({"kind": "polynomial", "degree": 3}, None),
        ({"kind": "polynomial", "degree": 2, "mode": "power"}, 25),
        ({"kind": "taylor", "order": 2}, 1 + 5 + 15),
        ({"kind": "dpfp", "nu": 2}, 20),
        ("cosine", 10),
        ({"kind": "random", "features": 12}, 12),
    ],
)
def test_feature_sizes(features: Any, count: int | None) -> None:
    if count is None:  # monomials of five variables of degree at most 3
        count = sum(len(list(combinations_with_replacement(range(5), i))) for i in range(4))
    found = cost(rule(features=features))
    assert found.features.subs(K, 5) == count
    assert found.evaluate(d_k=5, d_v=7)["state"] == count * 7


def test_a_phase_doubles_the_features() -> None:
    turned = rule(retention={"decay": "channel", "phase": {"from": "input", "per": "key"}})
    assert cost(turned).features == 2 * K


def test_sizes_that_are_missing_or_unknown_are_named() -> None:
    found = cost(rule())
    with pytest.raises(KeyError, match="d_v"):
        found.evaluate(d_k=4)
    with pytest.raises(TypeError, match="'depth'"):
        found.evaluate(d_k=4, d_v=4, depth=2)


def test_an_anchor_fixes_the_chunk() -> None:
    anchored = rule(bias="l2", optimizer={"rate": "token", "anchor": {"chunk": 16}})
    assert dict(cost(anchored).fixed)["b"] == 16
    assert cost(anchored).train_flops == sp.expand(6 * D * V + 2 * B * (D + V))


def test_costs_never_read_the_name() -> None:
    for bias, decay in product(("dot", "l2"), (1, "token")):
        entries = {"bias": bias, "retention": {"decay": decay}, "optimizer": {"rate": "token"}}
        one = derive_spec(Spec.model_validate({"name": "deltanet", **entries}))
        assert cost(one) == cost(rule(**entries))
