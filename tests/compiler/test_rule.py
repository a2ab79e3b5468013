"""The kinds of rules: which one a problem derives to follows from what it asks for."""

from dataclasses import fields
from typing import Any, get_args

import pytest

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.explanation import arguments
from mnemic.compiler.rule import (
    Common,
    KeyValuePairs,
    Layers,
    Levels,
    Linear,
    Moments,
    Rule,
)
from mnemic.dsl.load import load
from mnemic.dsl.retention import Retention

RIDGE = {"bias": "l2", "retention": {"global": {"l2": 0.1}}}
KINDS: dict[str, tuple[type[Common], dict[str, Any]]] = {
    "a plain step": (Linear, {"bias": "l2"}),
    "a momentum": (Linear, {"optimizer": {"method": "momentum", "momentum": 0.9, "rate": "token"}}),
    "a kernel": (Linear, {"bias": "l2", "features": "exponential"}),
    "a norm behind one matrix": (
        Linear, {"bias": "l2", "memory": {"kind": "mlp", "depth": 1, "norm": True}}
    ),
    "two layers": (Layers, {"bias": "l2", "memory": {"kind": "mlp"}}),
    "steps through O": (Layers, {"bias": "l2", "optimizer": {"method": "muon", "rate": 0.1}}),
    "an interval": (Layers, {"bias": "l2", "optimizer": {"rate": "token", "every": 4}}),
    "levels": (Levels, {"bias": "l2", "readout": {"levels": "token"}}),
    "levels that all weigh one": (Linear, {"bias": "l2", "readout": {"levels": 1}}),
    "an exact solution": (
        Moments, {**RIDGE, "window": "all", "optimizer": {"method": "exact"}}
    ),
    "full-batch steps": (
        Moments,
        {**RIDGE, "window": "all",
         "optimizer": {"method": "batch", "inner_steps": 2, "from": "origin", "rate": 0.1}},
    ),
    "pairs": (
        KeyValuePairs,
        {"bias": "l2", "window": "all", "memory": "nonparametric", "weights": "similarity",
         "optimizer": {"method": "nonparametric"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_kinds_follow_from_the_problem(name: str) -> None:
    kind, entries = KINDS[name]
    rule = derive_spec(load({"mnemic": 1, "name": "made", **entries}))
    assert type(rule) is kind


def test_every_kind_is_drawn() -> None:
    assert {kind for kind, _ in KINDS.values()} == set(get_args(Rule))


def test_what_a_kind_has_of_its_own_no_other_has() -> None:
    """Otherwise it would be a field that is or is not there."""
    common = {f.name for f in fields(Common)}
    own = [{f.name for f in fields(kind)} - common for kind in get_args(Rule)]
    assert sum(map(len, own)) == len(set().union(*own))


VALUE = {"decay": {"from": "input", "per": "value"}}
BALL = {"constraint": "ball"}
SIMPLEX = {"local": {"f-divergence": "(x - 1)**2"}, "constraint": "simplex"}
CHANNEL = {"method": "momentum", "momentum": "channel"}
WITHOUT_CHUNKS: dict[str, tuple[dict[str, Any], bool]] = {
    "a ball": ({"retention": BALL}, True),
    "a ball of the running dual": ({"retention": {**BALL, "view": "ftrl"}}, True),
    "a division by the norm": ({"retention": {"view": "ftrl", "link": "a/(1 + nu)"}}, True),
    "layers": ({"memory": "mlp"}, True),
    "adam": ({"optimizer": {"method": "adam"}}, True),
    "lion": ({"optimizer": {"method": "lion"}}, True),
    "adagrad": ({"optimizer": {"method": "adagrad"}}, True),
    "muon": ({"optimizer": {"method": "muon"}}, True),
    "momentum by channel": ({"optimizer": CHANNEL}, False),
    "a decay by value channel": ({"retention": VALUE}, False),
    "a decay by value channel, not quadratic": ({"bias": "huber", "retention": VALUE}, False),
    "an f-divergence": ({"retention": SIMPLEX}, False),
}
"""Rules without an exact chunk form, as README.md and docs/limits.md list them; an anchor's."""


def forms(entries: dict[str, Any], **optimizer: Any) -> tuple[str, ...]:
    optimizer = {"rate": "token", **entries.get("optimizer", {}), **optimizer}
    spec = {"name": "made", "bias": "l2", **entries, "optimizer": optimizer}
    return derive_spec(load(spec)).structure.forms


@pytest.mark.parametrize("name", WITHOUT_CHUNKS)
def test_which_rules_have_no_chunk_form(name: str) -> None:
    entries, by_anchor = WITHOUT_CHUNKS[name]
    assert forms(entries) == ("recurrent",)
    assert ("chunk" in forms(entries, anchor={"chunk": 4})) == by_anchor


def test_which_rules_beside_them_have_one() -> None:
    for entries in (
        {"bias": "dot", "retention": VALUE},
        {"memory": "diagonal", "retention": VALUE},
        {"memory": "diagonal", "optimizer": CHANNEL},
        {"memory": "mlp", "optimizer": {"every": 4}},
        {"optimizer": {"method": "muon", "every": 4}},
    ):
        assert "chunk" in forms(entries)


def test_an_outer_decay_is_one_by_channel_until_a_row_decay_joins_it() -> None:
    """So the page of the language and `mnemic new` say."""

    def decays(**retention: Any) -> tuple[str, str, str]:
        found = derive_spec(load({"name": "made", "bias": "l2", "retention": retention}))
        (alpha,) = (a for a in arguments(found) if a.name == "alpha")
        return str(found.decay), str(found.row_decay), alpha.shape

    assert decays(decay="outer") == decays(decay="channel") == ("alpha", "1", "[B, T, H, D]")
    assert decays(decay="outer", row_decay={"from": "input", "per": "value"})[1] == "beta"
    described = Retention.model_fields["decay"].description
    assert described is not None
    assert described.endswith("; outer: by key channel as channel is, and by value channel with a "
                              "row_decay")  # fmt: skip
