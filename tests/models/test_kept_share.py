"""Rules in a model share what a process may keep for gradients."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from mnemic import pipeline
from mnemic.dsl.load import load
from mnemic.models.device import Place
from mnemic.models.language_model import ModelOptions, build
from mnemic.models.parts import keep_share, rules_with_parts
from mnemic.search.space.settings import Model, TaskEntry, Training
from mnemic.search.study.training import Budget, Job, run

GIB = 2**30


def room(rule: Any) -> Any:
    """What a rule may keep, and keeps."""
    return rule.keeping.__globals__["_room"]


def test_layers_of_one_rule_have_half_of_the_memory() -> None:
    rule = pipeline.compile("lion")
    model = build(ModelOptions(16, dim=16, layers=2), lambda dim, _: rule.layer(dim, heads=2), 3)
    (found,) = rules_with_parts(model)
    before = room(found).most
    keep_share(model, math.inf)
    assert room(found).most == before
    keep_share(model, 3.0)
    assert room(found).most == 3 * GIB // 2
    room(found).most = before


def test_two_rules_share_it() -> None:
    each = iter([pipeline.compile(name) for name in ("lion", "linear-attention", "moneta")])
    model = build(ModelOptions(16, dim=16, layers=3), lambda dim, _: next(each).layer(dim), 3)
    kept = [room(rule) for rule in rules_with_parts(model)]
    before = [one.most for one in kept]
    keep_share(model, 4.0)
    assert [one.most for one in kept] == [GIB, GIB]
    for one, most in zip(kept, before, strict=True):
        one.most = most


def test_a_run_of_a_search_keeps_half_of_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    monkeypatch.setattr("mnemic.models.parts.keep_share", lambda _, memory: told.append(memory))
    budget = Budget(Model(dim=16, layers=1), Training(batch=2, eval_size=4), 1)
    entry = TaskEntry(rung="tiny")
    run(Job(load("lion"), "mqar", entry, None, budget, 0, Place(memory=3.0)), tmp_path)
    assert told == [3.0]
