"""Coefficients without effect are told by check: exactly those that the forms do not read."""

from typing import Any

import pytest
import torch

from mnemic import pipeline
from mnemic.codegen.module import plans
from mnemic.codegen.own_names import rename_own_coefficients
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.explanation import warned
from mnemic.compiler.explain.idle import idle
from mnemic.dsl.load import load

GATE = {"g": {"from": "input", "per": "key"}}
SPECS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "weights at rate 0": ({"weights": "token", "optimizer": {"rate": 0}}, {"gamma"}),
    "gates of a window at rate 0": (
        {"bias": "l2", "window": 3, "weights": "window", "optimizer": {"rate": 0}}, {"gamma"},
    ),
    "a threshold at rate 0": (
        {"bias": {"kind": "huber", "delta": "token"}, "optimizer": {"rate": 0}}, {"delta"},
    ),
    "what cancels": (
        {"optimizer": {"rate": {"expr": "lam - lam + 1"}}, "coefficients": {"lam": "token"}},
        {"lam"},
    ),
    "a key that nothing predicts by": ({"keys": {"predict": "g*k"}, "coefficients": GATE}, {"g"}),
    "none": (
        {"bias": {"kind": "huber", "delta": "token"}, "weights": "window", "window": 3,
         "keys": {"predict": "own"}, "retention": {"decay": "token"},
         "optimizer": {"rate": "token", "method": "momentum", "momentum": "token"}}, set(),
    ),
    "learned features": ({"features": {"kind": "polynomial", "degree": 2}}, set()),
    "weights of the past": (
        {"bias": "l2", "window": "all", "weights": "geometric", "optimizer": {"method": "exact"},
         "retention": {"global": {"l2": 0.5}}}, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", SPECS)
def test_what_has_no_effect_is_told(title: str) -> None:
    said, names = SPECS[title]
    rule = derive_spec(load({"mnemic": 1, "name": "idle", **said}))
    assert {s.name for s in idle(rule)} == names
    told = [line for line in warned(rule) if "no effect" in line]
    assert len(told) == (1 if names else 0)
    assert all(name in line for line in told for name in names)
    read = plans(rename_own_coefficients(rule)).recurrent.arguments()
    assert {str(s.argument) for s in rule.scalars if s.argument} - set(read) == names


def test_what_the_features_are_made_of_is_not_idle() -> None:
    assert idle(derive_spec(load("dla"))) == ()


READ: dict[str, dict[str, Any]] = {
    "weights of levels": {
        "bias": "l2", "readout": {"levels": {"expr": "a"}, "max_levels": 8},
        "coefficients": {"a": "token"},
    },
    "a bonus": {"readout": {"bonus": {"expr": "a/2"}}, "coefficients": {"a": "token"}},
    "a phase": {"retention": {"phase": {"expr": "2*a"}}, "coefficients": {"a": "token"}},
    "features": {
        "features": {"kind": "polynomial", "a": [0, {"expr": "a"}, 1]},
        "coefficients": {"a": "learned"},
    },
    "a scale": {
        "bias": "l2", "coefficients": {"a": "learned"},
        "retention": {"local": "kl", "constraint": {"kind": "simplex", "scale": {"expr": "a"}}},
    },
    "a radius, two steps away": {
        "bias": "l2", "retention": {"constraint": {"kind": "ball", "radius": {"expr": "b/9"}}},
        "coefficients": {"a": "learned", "b": {"expr": "a"}},
    },
}  # fmt: skip
"""Coefficients that no equation holds but through another's expression."""


@pytest.mark.parametrize("title", READ)
def test_what_another_coefficient_reads_is_not_idle(title: str) -> None:
    assert idle(derive_spec(load({"mnemic": 1, "name": "idle", **READ[title]}))) == ()


@pytest.mark.full
@pytest.mark.parametrize("title", [title for title in READ if title != "a phase"])
def test_what_another_coefficient_reads_learns(title: str) -> None:
    torch.manual_seed(0)
    layer = pipeline.compile({"mnemic": 1, "name": "idle", **READ[title]}).layer(8, heads=1)
    layer(torch.randn(1, 6, 8)).square().sum().backward()
    slopes = [p.grad for name, p in layer.named_parameters() if name.startswith("raw_a")]
    learnt = [x for x in slopes if x is not None and x.any()]
    assert learnt
