"""Neighbours of a spec, and what each change of it does."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
from scipy import stats

from mnemic.compiler.compare.verdict import same
from mnemic.dsl.bias import Bias
from mnemic.dsl.load import load
from mnemic.pipeline import derive
from mnemic.search.report.ablation import default_space, effects, page
from mnemic.search.report.entries import Entry
from mnemic.search.space.neighbours import AXES, Neighbour, neighbours, values
from mnemic.search.study.training import Run
from mnemic.search.study.work import Look


def test_every_field_of_the_memory_is_on_one_axis():
    from mnemic.dsl.spec import Spec

    spec, seen = Spec(name="any"), list[tuple[str, str]]()
    for axis in AXES.values():
        seen += [(axis.field, part) for part in axis.parts or ("",)]
    assert len(seen) == len(set(seen))
    for field in ("retention", "optimizer"):
        parts = set(type(getattr(spec, field)).model_fields)
        assert {part for name, part in seen if name == field} == parts
    apart = {"mnemic", "name", "title", "source", "published", "notes", "coefficients", "block"}
    assert {name for name, _ in seen} == set(Spec.model_fields) - apart


def test_neighbours_differ_in_one_axis_and_are_other_rules():
    spec = load("linear-attention")
    found, dropped = neighbours(spec, ("order", "anchor", "weights"))
    token = "weights uniform → {kind: token, gamma: {from: input, activation: sigmoid}}"
    assert ("weights", token) in [(one.axis, one.change) for one in found]
    order = next(one for one in dropped if one.axis == "order")
    assert order.why == "the same rule as the spec itself", "without a decay there is no order"
    assert all(one.why for one in dropped)
    own = derive(spec)
    for one in found:
        assert AXES[one.axis].of(one.spec) != AXES[one.axis].of(spec)
        assert not same(one.rule, own)


def test_a_coefficient_that_a_value_names_comes_along():
    found, _ = neighbours(load("linear-attention"), ("keys",))
    named = [one for one in found if "coefficients.b" in one.change or one.spec.coefficients]
    assert named
    assert all(set(one.spec.coefficients) <= {"a", "b", "w"} for one in named)


def test_a_loss_of_the_language_is_a_value_of_its_axis(monkeypatch):
    kinds = {value.kind for value in values(AXES["loss"])}
    assert kinds >= {"dot", "l2", "lp", "huber", "robust"}

    monkeypatch.setattr(Bias, "registry", dict(Bias.registry))

    class Cubic(Bias):
        kind: Literal["cubic"] = "cubic"

    assert Cubic() in values(AXES["loss"])


def test_the_same_rule_is_the_same_whatever_its_coefficients_are_called():
    a = derive({"name": "a", "bias": "l2", "optimizer": {"rate": "token"}})
    b = derive({"name": "b", "bias": {"expr": "(v - y)**2/2"}, "optimizer": {"rate": "token"}})
    c = derive({"name": "c", "bias": "dot", "optimizer": {"rate": "token"}})
    assert same(a, b)
    assert not same(a, c)


def entry(name: str, skills: dict[str, list[float]], **told: Any) -> Entry:
    runs = tuple(
        Run(task, seed, skill, skill, 1.0, 0.1, ())
        for task, found in skills.items() for seed, skill in enumerate(found)
    )  # fmt: skip
    return Entry(name, Look(name, "affine", 1, 1, 1.0, None), runs, **told)


OWN = {"mqar": [0.5, 0.9, 0.1], "swaps": [0.4, 0.2, 0.3]}
GAIN = {"mqar": [0.6, 1.01, 0.2], "swaps": [0.52, 0.3, 0.4]}


def change(name: str) -> Neighbour:
    return Neighbour("loss", f"bias l2 → {name}", load("deltanet"), None)  # type: ignore[arg-type]


def test_changes_are_measured_beside_the_same_seed():
    noise = {"mqar": [0.1, 0.95, 0.5], "swaps": [0.4, 0.2, 0.1]}
    pairs = [(change("a"), entry("a", noise)), (change("b"), entry("b", GAIN))]
    gain, none = effects(entry("own", OWN), pairs)
    assert (gain.name, none.name) == ("b", "a")
    apart = [0.11, 0.105, 0.1]
    assert gain.mean.mean == pytest.approx(math.fsum(apart) / 3)
    low, high = stats.t.interval(0.95, 2, loc=gain.mean.mean, scale=stats.sem(apart))
    assert (gain.mean.low, gain.mean.high) == (pytest.approx(low), pytest.approx(high))
    assert gain.sure, "seeds differ by far more than the change does, which pairs do not see"
    assert not none.sure
    assert gain.tasks["swaps"].mean == pytest.approx(0.32 / 3)


def test_a_change_that_fails_on_a_task_has_no_mean():
    half = entry("h", {"mqar": GAIN["mqar"]}, failed={"swaps": "memory: out of memory"})
    (one,) = effects(entry("own", OWN), [(change("h"), half)])
    assert (one.mean, one.sure, one.why) == (None, False, "memory: out of memory")
    assert set(one.tasks) == {"mqar"}
    text = page(default_space(), entry("own", OWN), [one], [])
    assert "- loss: bias l2 → h: memory: out of memory" in text
    assert "| loss | bias l2 → h | – | +0.103 ± 0.014 | – |" in text
