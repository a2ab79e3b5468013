"""The map of systems: what is found, that numbers can refuse it, what follows from what."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
import sympy as sp
from packaged import rule_of
from tiers import first_only

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec
from mnemic.relations import Map, build, graph, related
from mnemic.relations.confirm import Unconfirmed, confirm
from mnemic.relations.drawing import svg
from mnemic.relations.search import Found

NAMES = (
    "linear-attention", "retnet", "gla", "deltanet", "deltanet-negative", "gated-deltanet",
    "leaky-lms", "deltanet-momentum", "titans-linear", "huber-norm", "deltaproduct",
    "titans", "titans-mag", "kernel-regression",
)  # fmt: skip


@cache
def rules() -> dict[str, Rule]:
    return {name: rule_of(name) for name in NAMES}


@cache
def searched() -> tuple[Found, ...]:
    return tuple(related(rules()))


@cache
def drawn() -> Map:
    """The map of what the search found; ``build`` with a search is tried on pairs, below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "related", lambda *_: searched())
        return build(rules())


def found(inner: str, outer: str) -> Found:
    (one,) = [f for f in searched() if (f.relation.inner, f.relation.outer) == (inner, outer)]
    return one


@pytest.mark.parametrize(
    ("inner", "outer", "kind", "told"),
    [
        ("linear-attention", "gla", "special case", {"α = 1"}),
        ("retnet", "gla", "special case", {"α′ = 1 − 2^(−h)/32"}),
        ("gated-deltanet", "leaky-lms", "equal under a change", {"η′ = α·η", "v′ = v/α"}),
        ("gated-deltanet", "huber-norm", "limit", {"δ = ∞"}),
        ("deltanet-momentum", "deltanet", "meeting", {"θ = 0", "η = 1"}),
        ("deltanet", "deltaproduct", "special case", {"η of key 2 = 0"}),
        ("titans", "titans-mag", "equal", set()),
    ],
)  # fmt: skip
def test_relations_are_found_and_hold_in_numbers(
    inner: str, outer: str, kind: str, told: set[str]
) -> None:
    (one,) = [r for r in drawn().relations if (r.inner, r.outer) == (inner, outer)]
    assert one.kind == kind
    assert told <= {*one.at, *one.where, *one.change}
    assert one.error is not None
    assert one.error < 1e-5


PAIRS = (
    ("hgrn2", "gla", "special case", {"k′ = 1 − α"}),
    ("gated-deltanet", "comba", "special case", {"predict′ = k"}),
    ("deltanet", "lp", "special case", {"p = 2", "η′ = η/2"}),
    ("linear-attention", "polysketchformer", "special case", {"degree = 1"}),
    ("linear-attention", "deltanet", "limit", {"η → 0", "v′ = v/η"}),
    ("softmax-attention", "swa", "limit", {"window = ∞"}),
    ("hgrn", "griffin", "special case", {"k′ = (1 − α)/√(1 − α²)"}),
    ("kda", "rwkv7-full", "special case", {"predict′ = α·k", "a′ = η/α"}),
    ("deltanet", "elastic-net", "special case", {"l1 = 0", "l2 = 0"}),
    ("value-less", "q-omega", "special case", {"p = 1", "window 1"}),
    ("path", "path-fox", "special case", {"α = 1"}),
)


@pytest.mark.parametrize(("inner", "outer", "kind", "told"), first_only(PAIRS, *PAIRS[:6]))
def test_numbers_keys_and_small_steps(inner: str, outer: str, kind: str, told: set[str]) -> None:
    """Numbers of a spec are parameters, keys may be functions of coefficients, steps may vanish."""
    (one,) = build({name: rule_of(name) for name in (inner, outer)}).relations
    assert (one.inner, one.outer, one.kind) == (inner, outer, kind)
    assert told <= {*one.at, *one.change}
    assert one.error is not None
    assert one.error < (1e-6 if kind == "limit" else 1e-9)


def test_numbers_refuse_a_wrong_key() -> None:
    own = {name: rule_of(name) for name in ("hgrn2", "gla")}
    (one,) = related(own)
    change = tuple((s, 1.01 * x if str(s) == "k_0" else x) for s, x in one.match.change)
    change = tuple((s, 1.01 * x if str(s) == "k_1" else x) for s, x in change)
    with pytest.raises(Unconfirmed, match="differ by"):
        confirm(replace(one, match=replace(one.match, change=change)), own)


def test_numbers_refuse_small_steps_whose_values_do_not_grow() -> None:
    own = {name: rule_of(name) for name in ("linear-attention", "deltanet")}
    (one,) = related(own)
    with pytest.raises(Unconfirmed):
        confirm(replace(one, at=replace(one.at, scaled=None)), own)


def test_everything_that_algebra_finds_is_confirmed() -> None:
    assert drawn().unconfirmed == ()
    assert len(drawn().relations) == len(searched())


def test_numbers_refuse_a_wrong_change() -> None:
    one = found("gated-deltanet", "leaky-lms")
    change = tuple((s, 1.01 * x if str(s) == "eta" else x) for s, x in one.match.change)
    with pytest.raises(Unconfirmed, match="differ by"):
        confirm(replace(one, match=replace(one.match, change=change)), rules())


def test_numbers_refuse_a_wrong_factor_on_values() -> None:
    one = found("gated-deltanet", "leaky-lms")
    with pytest.raises(Unconfirmed, match="differ by"):
        confirm(replace(one, match=replace(one.match, scale=sp.Integer(1))), rules())


def test_numbers_refuse_a_limit_that_is_none() -> None:
    one = found("deltanet", "huber-norm")
    change = tuple((s, 1.01 * x if str(s) == "eta" else x) for s, x in one.match.change)
    wrong = replace(one, match=replace(one.match, change=change))
    with pytest.raises(Unconfirmed, match="towards the limit"):
        confirm(wrong, rules())


def test_equal_memories_in_other_blocks_are_told_apart() -> None:
    (one,) = [r for r in drawn().relations if (r.inner, r.outer) == ("titans", "titans-mag")]
    assert any(note.startswith("another block") for note in one.notes)


def test_a_range_that_differs_is_told() -> None:
    pair = ("deltanet", "deltanet-negative")
    (one,) = [r for r in drawn().relations if (r.inner, r.outer) == pair]
    assert one.kind == "equal"
    assert one.notes == ("deltanet has eta in (0, 1), deltanet-negative eta in (0, 2)",)


LEAVES = "for some values the change leaves the range of a coefficient"
WIDER = "deltanet-negative has eta in (0, 2), gated-deltanet eta in (0, 1)"


@pytest.mark.parametrize(
    ("inner", "outer", "told"),
    [
        ("gated-deltanet", "leaky-lms", (LEAVES,)),
        ("deltanet-negative", "gated-deltanet", (WIDER,)),
        ("deltanet", "gated-deltanet", ()),
        ("gated-deltanet", "titans-linear", ()),
    ],
)
def test_where_a_change_leaves_a_range_is_told(
    inner: str, outer: str, told: tuple[str, ...]
) -> None:
    (one,) = [r for r in drawn().relations if (r.inner, r.outer) == (inner, outer)]
    assert one.notes == told
    assert all(note in str(one) for note in told)
    assert one.to_json()["notes"] == [*told]


def test_a_change_that_is_no_renaming_is_tried_over_the_whole_range() -> None:
    """η′ = δ/(1 + δ‖k‖²) passes 1 for short keys; 1/‖k‖² − exp(−η‖k‖²)/‖k‖² stays below η < 1."""
    own = {
        name: rule_of(name) for name in ("longhorn", "efla", "deltanet-negative", "gated-deltanet")
    }
    told = {(r.inner, r.outer): r.notes for r in build(own).relations}
    assert LEAVES in told["longhorn", "gated-deltanet"]
    assert told["efla", "gated-deltanet"] == ()
    assert LEAVES in told["deltanet-negative", "longhorn"]
    assert LEAVES in told["deltanet-negative", "efla"]


def test_compositions_are_left_out_and_nothing_is_lost() -> None:
    """Who reaches whom is the same over the direct relations alone."""
    import networkx as nx

    whole = drawn()
    direct = Map(whole.classes, whole.direct)
    assert len(whole.direct) < len(whole.relations)
    pairs = [dict(nx.all_pairs_shortest_path_length(m.graph)) for m in (whole, direct)]
    reached = [{(a, b) for a, ends in p.items() for b in ends} for p in pairs]
    assert reached[0] == reached[1]


def test_a_path_is_a_chain() -> None:
    path = drawn().path("linear-attention", "retnet")
    assert path is not None
    assert [{r.inner, r.outer} for r in path] == [{"linear-attention", "gla"}, {"retnet", "gla"}]
    assert drawn().path("linear-attention", "kernel-regression") is None
    assert drawn().alone == ("kernel-regression",)


def test_a_rule_of_ones_own_is_placed() -> None:
    own = derive_spec(Spec.model_validate({
        "name": "mine", "bias": {"expr": "e**2"}, "optimizer": {"rate": "token"},
    }))  # fmt: skip
    others = {name: rules()[name] for name in ("linear-attention", "deltanet", "deltaproduct")}
    near = build({**others, "mine": own}, only="mine").near("mine")
    assert ("deltanet", "equal under a change") in {(r.inner, r.kind) for r in near}


def test_it_reads_what_it_wrote_and_draws_every_system() -> None:
    whole = drawn()
    assert Map.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    picture = svg(whole)
    assert all(f">{name}<" in picture for name in NAMES)
    assert picture == svg(whole)
