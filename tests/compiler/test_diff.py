"""Comparisons of rules: what is equal, under which change, and what is a special case of what."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import torch
from packaged import rule_of
from tiers import first_only

import mnemic
from mnemic.compiler.compare import verdict
from mnemic.compiler.compare.diff import diff
from mnemic.compiler.compare.differing_entries import axes
from mnemic.compiler.compare.verdict import judge
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec


def rule(**entries: Any) -> Rule:
    """A rule whose name tells nothing."""
    return derive_spec(Spec.model_validate({"name": "mine", **entries}))


TOKEN = {"optimizer": {"rate": "token"}}
CHANNEL = {"retention": {"decay": "channel", "order": "before"}}
DELTA = rule(bias="l2", **TOKEN)
GATED = rule(bias="l2", retention={"decay": "token", "order": "before"}, **TOKEN)
LEAKY = rule(
    bias="l2", retention={"decay": "1 - eta*lam"}, coefficients={"lam": "token"}, **TOKEN
)  # fmt: skip
IMPLICIT = rule(bias="l2", optimizer={"method": "implicit", "rate": "token"})
FLOW = rule(bias="l2", optimizer={"method": "flow", "rate": "token"})
NEAREST = rule(bias="l2", optimizer={"method": "implicit", "rate": float("inf")})
LINEAR = rule()
DECAYING = rule(retention={"decay": "token"})
MOMENTUM = rule(
    bias="l2",
    retention={"decay": "token"},
    optimizer={"method": "momentum", "rate": "token", "momentum": "token"},
)
WINDOW = rule(bias="l2", window=4, weights="window", retention={"decay": "channel"})
SOLVED: dict[str, Any] = {
    "bias": "l2", "window": "all", "retention": {"global": {"l2": 0.5}},
    "optimizer": {"method": "exact"},
}  # fmt: skip
OWN_KEY = rule(
    bias="l2", retention={"decay": "token", "order": "before"}, keys={"predict": "own"}, **TOKEN
)


def test_leaky_lms_is_gated_deltanet_in_other_coordinates() -> None:
    """Test-time regression (38)-(41): (λ, β, v) ↔ (α, η, v′)."""
    found = judge(GATED, LEAKY)
    assert found.kind == "equal-under-change"
    assert set(found.change) == {"η′ = α·η", "λ′ = (1 − α)/(α·η)", "v′ = v/α"}
    assert "α′ = 1 − η·λ" in found.back


@pytest.mark.parametrize("order", [1, -1])
def test_a_direction_that_time_ran_out_over_is_inverted(
    monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    """The change of one direction, solved for the other's coefficients, is what was not found."""
    give_up_on_the_second(monkeypatch)
    found = judge(*(GATED, LEAKY)[::order])
    assert found.kind == "equal-under-change"
    assert found.finished
    told = {"η′ = α·η", "λ′ = (1 − α)/(α·η)", "v′ = v/α"}
    assert set(found.change if order == 1 else found.back) == told


def test_a_direction_that_time_ran_out_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an answer is not given as a whole one."""
    give_up_on_the_second(monkeypatch)
    monkeypatch.setattr(verdict, "inverse", lambda *_: None)
    found = judge(GATED, LEAKY)
    assert not found.finished
    assert found.sentence.endswith("not settled: the search ran out of time.")


def give_up_on_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first direction be found, in all the time there is."""
    search, directions = verdict.match, iter((True, False))

    def once(one: Any, other: Any, clock: Any) -> Any:
        object.__setattr__(clock, "end", float("-inf"))
        return search(one, other, verdict.Clock(float("inf"))) if next(directions) else None

    monkeypatch.setattr(verdict, "match", once)


@pytest.mark.parametrize("p", [2, 2.0])
def test_a_power_of_two_is_the_square_at_twice_the_rate(p: float) -> None:
    found = judge(rule(bias={"kind": "lp", "p": p}, **TOKEN), DELTA)
    assert found.kind == "equal-under-change"
    assert found.change == ("η′ = 2·η",)
    assert found.back == ("η′ = η/2",)


@pytest.mark.full
def test_regressions_that_do_not_forget_are_one() -> None:
    """A ridge that starts the moments is one that stands beside them, where nothing fades."""
    exact: dict[str, Any] = {"bias": "l2", "window": "all", "optimizer": "exact"}
    ridge = {"view": "ftrl", "global": {"l2": 0.5}}
    learned = {"view": "ftrl", "global": {"l2": {"from": "parameter", "per": "key"}}}
    constant = {"kind": "geometric", "ridge": "constant"}
    plain = rule(**exact, retention=ridge)
    found = judge(plain, rule(**exact, retention=learned, weights=constant), seconds=120)
    assert found.kind == "a-in-b"
    assert set(found.at) == {"γ = 1", "λ = 1/2"}
    forgotten = rule(**exact, retention=ridge, weights="geometric")
    assert judge(plain, forgotten, seconds=60).at == ("γ = 1",)
    fixed = rule(**exact, retention=ridge, weights=constant)
    assert judge(forgotten, fixed, seconds=30).kind == "different"


def test_the_implicit_step_is_a_delta_step() -> None:
    found = judge(IMPLICIT, DELTA)
    assert found.kind == "equal-under-change"
    assert found.change == ("η′ = δ/(1 + δ·‖k‖²)",)
    assert "leaves the range" in found.sentence


@pytest.mark.full
def test_the_flow_is_a_delta_step() -> None:
    found = judge(FLOW, DELTA, seconds=60)
    assert found.kind == "equal-under-change"
    assert found.change == ("η′ = 1/‖k‖² − exp(−η·‖k‖²)/‖k‖²",)


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("inner", "outer", "at"),
    [
        (DELTA, GATED, {"α = 1"}),
        (LINEAR, DECAYING, {"α = 1"}),
        (DELTA, MOMENTUM, {"θ = 0", "α = 1"}),
        (DELTA, WINDOW, {"window 1", "α = 1"}),
        (NEAREST, IMPLICIT, {"δ = ∞"}),
        (GATED, OWN_KEY, {"predict = k"}),
        (DELTA, rule(bias={"kind": "robust", "Delta": "token"}, **TOKEN), {"Δ = 0"}),
        (rule(**SOLVED), rule(**SOLVED, readout={"bonus": "channel"}), {"u = 0"}),
        (DELTA, rule(bias={"kind": "huber", "delta": "token"}, **TOKEN), {"δ = ∞"}),
    ],
)
def test_special_cases_are_found(inner: Rule, outer: Rule, at: set[str]) -> None:
    found = judge(inner, outer, seconds=60)
    assert found.kind == "a-in-b"
    assert set(found.at) == at


def test_special_cases_are_found_from_the_other_side() -> None:
    found = judge(GATED, DELTA)
    assert found.kind == "b-in-a"
    assert found.sentence.startswith("B is A at α = 1")


def test_one_gate_for_all_channels_is_a_special_case() -> None:
    found = judge(GATED, rule(bias="l2", **CHANNEL, **TOKEN))
    assert found.kind == "a-in-b"
    assert "α′ = α in every channel" in found.change


def test_a_fixed_decay_is_a_value_of_a_free_one() -> None:
    fixed = rule(retention={"decay": "1 - 2**(-5 - h)"})
    found = judge(fixed, DECAYING)
    assert found.kind == "a-in-b"
    assert found.change == ("α′ = 1 − 2^(−h)/32",)


def test_gates_on_keys_and_values_hold_a_rate() -> None:
    gates = {"b": {"from": "input", "per": "key"}, "w": {"from": "input", "per": "value"}}
    keys = {"predict": "b*k", "erase": "k", "value": "w*v"}
    split = rule(bias="l2", keys=keys, coefficients=gates, **CHANNEL)
    found = judge(rule(bias="l2", **CHANNEL, **TOKEN), split)
    assert found.kind == "a-in-b"
    assert set(found.change) >= {"b′ = η", "w′ = η"}


def test_other_names_are_no_difference() -> None:
    named = rule(bias="l2", optimizer={"rate": "b"}, coefficients={"b": "token"})
    assert judge(named, DELTA).kind == "equal"
    assert judge(DELTA, DELTA).kind == "equal"


def test_a_mirrored_loss_is_settled_by_numbers() -> None:
    one = rule(bias={"expr": "log(cosh(e))"}, **TOKEN)
    other = rule(bias={"expr": "log((exp(e) + exp(-e))/2)"}, **TOKEN)
    assert judge(one, other).kind == "equal"


NORMED: dict[str, Any] = {"readout": {"normalizer": "sum"}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"expr": "silu(x)"}, {"expr": "x/(1 + exp(-x))"}),
        ("elu", {"expr": "where(x > 0, 1 + x, exp(x))"}),
        ("relu", {"expr": "(x + abs(x))/2"}),
        ("identity", {"expr": "log(exp(x))"}),
        ({"kernel": "exp(s)"}, {"kernel": "cosh(s) + sinh(s)"}),
    ],
)
def test_a_feature_map_written_otherwise_is_the_same(one: Any, other: Any) -> None:
    assert judge(rule(features=one), rule(features=other)).kind == "equal"
    if "kernel" not in one:
        assert judge(rule(features=one, **NORMED), rule(features=other, **NORMED)).kind == "equal"


def test_features_that_differ_are_shown() -> None:
    found = judge(rule(features={"expr": "silu(x)"}), rule(features="relu"))
    assert found.kind == "different"
    assert "σ(x)" in found.sentence
    assert "max" in found.sentence


ELSEWHERE = {
    "after two tokens": ("0.5*where(t < 2, 1, 0.2)", "0.5"),
    "after forty tokens": ("1/(1 + t)", "where(t < 40, 1/(1 + t), 0)"),
    "after a hundred tokens": ("1/(1 + t)", "1/(1 + min(t, 100))"),
    "from the second head on": ("1/(1 + h)", "1/(1 + min(h, 1))"),
    "above five": ("b/(1 + b)", "min(b, 5)/(1 + min(b, 5))"),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_rules_that_differ_at_some_numbers_alone_differ(case: str) -> None:
    above = {"coefficients": {"b": {"from": "input", "activation": "softplus"}}}
    one, other = (
        rule(bias="l2", optimizer={"rate": {"expr": rate}}, **(above if "b" in rate else {}))
        for rate in ELSEWHERE[case]
    )
    assert judge(one, other).kind != "equal"


def test_a_coefficient_is_compared_within_its_range() -> None:
    one, other = (
        rule(bias="l2", optimizer={"rate": {"expr": rate}}, coefficients={"b": "token"})
        for rate in ("b", "min(b, 1)")
    )
    assert judge(one, other).kind == "equal"


def test_what_no_number_reaches_is_not_called_the_same() -> None:
    one, other = (
        rule(bias="l2", optimizer={"rate": {"expr": rate}})
        for rate in ("0.5", "where(h < H, 0.5, t)")
    )
    found = judge(one, other)
    assert found.kind == "different"
    assert not found.finished
    assert "not settled" in found.sentence


def test_another_block_around_the_same_memory_is_told() -> None:
    found = diff(rule_of("titans"), rule_of("titans-mag")).verdict
    assert found.kind == "equal"
    assert found.sentence.startswith("Same memory, other block: ")
    assert "hybrid" in found.sentence
    assert "block" not in diff(rule_of("titans"), rule_of("titans")).verdict.sentence


@pytest.mark.parametrize(
    ("inner", "outer", "at"),
    first_only(
        [
            ("titans-minus", "titans", {"θ = 0"}),
            ("ttt-mlp", "titans-minus", {"α = 1"}),
            ("omeganet", "atlas", {"O = identity", "θ = 0", "η = 1"}),
            ("atlas", "atlas-plus", {"no gate"}),
        ],
        ("titans-minus", "titans", {"θ = 0"}),
        ("ttt-mlp", "titans-minus", {"α = 1"}),
        ("atlas", "atlas-plus", {"no gate"}),
    ),
)
def test_deep_memories_that_are_special_cases(inner: str, outer: str, at: set[str]) -> None:
    found = judge(rule_of(inner), rule_of(outer), seconds=120)
    assert found.kind == "a-in-b"
    assert set(found.at) == at
    assert judge(rule_of(outer), rule_of(inner), seconds=120).kind == "b-in-a"


def test_a_gated_memory_whose_gate_is_held_at_one_is_the_memory_without_it() -> None:
    """What "no gate" says of Atlas in Atlas++: with W3 φ(x) kept at one, W1 and W2 learn the same.

    No coefficients do this: a start with a gate of one agrees until the gate has learned, so the
    special case is one of parts, as "O = identity" and "no norms" are. φ(x) begins with √a0 = 1.
    """
    tokens, d, m, features = 20, 3, 12, 10
    draw = torch.Generator().manual_seed(3)
    normal = partial(torch.randn, generator=draw, dtype=torch.float64)
    uniform = partial(torch.rand, generator=draw, dtype=torch.float64)
    q, k, v = (normal(1, tokens, 1, d) for _ in range(3))
    coefficients = {
        "eta": uniform(1, tokens, 1) / 8, "theta": uniform(1, tokens, 1),
        "log_alpha": -uniform(1, tokens, 1) / 8, "gamma": uniform(1, tokens, 1, 4),
        **{f"a{i}": torch.full_like(q[..., 0], a) for i, a in enumerate((1.0, 0.7, 0.3))},
    }  # fmt: skip
    plain, gated = (mnemic.compile(name).operator for name in ("atlas", "atlas-plus"))
    params = {"W1": normal(1, d, m), "W2": normal(1, m, features)}
    gate = torch.zeros(1, m, features, dtype=torch.float64)
    gate[..., 0] = 1
    expected, _ = plain(q, k, v, params=params, **coefficients)
    started = {**params, "W3": gate}

    learned, _ = gated(q, k, v, params=started, **coefficients)
    assert (learned - expected).abs().amax() > 0.1

    state, held = {}, []
    for t in range(tokens):
        at = slice(t, t + 1)
        now = {name: x[:, at] for name, x in coefficients.items()}
        _, state = gated(
            q[:, at], k[:, at], v[:, at], params=started, initial_state=state,
            output_final_state=True, form="recurrent", **now,
        )  # fmt: skip
        state |= {"W3": gate[None], "anchor3": gate[None]}
        read = {name: now[name] for name in gated.reading}
        held.append(gated.read(q[:, at], state, params=started, **read))
    torch.testing.assert_close(torch.cat(held, 1), expected, rtol=1e-10, atol=1e-10)


DIFFER = (
    ("titans", "titans-linear", {"memory", "sizes", "prediction", "read-out", "anchor"}),
    ("lact", "cms", {"memory", "sizes", "step through", "moves", "norms", "prediction",
                     "error signal", "slope", "decay", "read-out", "anchor"}),
    ("moneta", "moneta-derived", {"link"}),
    ("memora", "memora-l2", {"prediction", "error signal", "slope"}),
)  # fmt: skip


@pytest.mark.some(1)
@pytest.mark.parametrize(("a", "b", "told"), first_only(DIFFER, *DIFFER[:2]))
def test_deep_memories_that_differ(a: str, b: str, told: set[str]) -> None:
    found = diff(rule_of(a), rule_of(b), seconds=2)
    assert found.verdict.kind == "different"
    assert {row.name for row in found.terms} == told
    assert json.loads(json.dumps(found.to_json()))["a"] == a


def test_gates_of_keys_take_up_a_rate_and_a_rate_no_gates() -> None:
    windowed = {"window": 4, "memory": "mlp", "bias": "l2"}
    gated = rule(**windowed, weights="window")
    both = rule(**windowed, weights="window", optimizer={"rate": "token"})
    found = judge(gated, both, seconds=30)
    assert found.kind == "equal-under-change"
    assert found.change == ("η = 1",)
    assert set(found.back) == {"γ′ = η·γ", "γ of key 2′ = η·γ of key 2"}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (LINEAR, DELTA),
        (DELTA, rule(bias="l2", features="relu", **TOKEN)),
        (DELTA, rule(bias="l2", retention={"local": "kl", "constraint": "simplex"}, **TOKEN)),
        (rule(readout={"normalizer": "sum"}), LINEAR),
        (rule(**SOLVED, readout={"memory": "before"}), rule(**SOLVED)),
    ],
)
def test_rules_that_differ_are_not_called_equal(a: Rule, b: Rule) -> None:
    found = judge(a, b, seconds=60)
    assert found.kind == "different"
    assert "were found" in found.sentence
    assert found.finished


def test_a_search_without_time_says_so() -> None:
    found = judge(LINEAR, DELTA, seconds=0)
    assert not found.finished
    assert "ran out of time" in found.sentence


def test_the_name_plays_no_part() -> None:
    entries: dict[str, Any] = {"bias": "l2", "optimizer": {"rate": "token"}}
    disguised = derive_spec(Spec.model_validate({"name": "linear-attention", **entries}))
    assert judge(disguised, DELTA).kind == "equal"


def test_axes_are_told_by_path_in_their_short_spelling() -> None:
    rows = {row.name: (row.a, row.b) for row in axes(GATED.problem.spec, LEAKY.problem.spec)}
    assert rows == {
        "retention.decay": ("token", "1 - eta*lam"),
        "retention.order": ("before", "after"),
        "coefficients.lam": ("none", "token"),
    }
    elastic = rule(bias="l2", retention={"global": {"elastic": {"l1": 0.05, "l2": "learned"}}})
    (row,) = axes(rule(bias="l2").problem.spec, elastic.problem.spec)
    assert row.name == "retention.global"
    assert row.b == "{kind: elastic, elastic: {l1: 0.05, l2: learned}}"


def test_terms_are_told_side_by_side() -> None:
    found = diff(GATED, MOMENTUM)
    names = {row.name for row in found.terms}
    assert names == {"prediction", "seen part", "momentum"}
    text = str(found)
    assert "prediction" in text
    assert "state" in text
    assert json.loads(json.dumps(found.to_json()))["verdict"]["kind"] == "a-in-b"


def test_conditions_that_have_no_value_at_infinity() -> None:
    """A threshold η·λ₁ at η = ∞, λ₁ = 0 is no number, so no special value is claimed there."""

    def soft(view: str, **entries: Any) -> Rule:
        elastic = {"elastic": {"l1": "learned", "l2": 0.1}}
        return rule(bias="l2", retention={"view": view, "global": elastic}, **entries)

    learned = {"optimizer": {"rate": "learned"}}
    assert judge(soft("learning-retaining", **learned), soft("ftrl")).kind == "different"
    assert judge(soft("ftrl"), soft("learning-retaining", **learned)).kind == "different"
    assert judge(soft("ftrl", **learned), soft("ftrl", **learned)).kind == "equal"


def test_a_prompt_shows_the_comparison() -> None:
    found = diff(DELTA, GATED)
    assert repr(found) == str(found)
    assert found.verdict.sentence in repr(found)
