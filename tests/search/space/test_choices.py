"""Choices: what is read, what is asked and when, what is refused and how."""

import math
import random

import pytest

from mnemic.errors import InvalidSpec
from mnemic.search.space.asking import by_answers, by_chance, every
from mnemic.search.space.choices import choices, count, resolve
from mnemic.search.space.space import load_space

SEARCH = {"tasks": {"mqar": "tiny"}}
HUBER = {"kind": "huber", "delta": {"range": [0.1, 10], "log": True}}


def space(**axes):
    return load_space({"name": "mine", **axes, "search": SEARCH})


def test_a_choice_inside_an_option_is_asked_for_only_there():
    found = space(bias={"choose": ["dot", HUBER]}, window={"range": [1, 4]})
    assert [(n, g) for n, _, g in choices(found.root)] == [
        ("bias", {}), ("bias=huber.delta", {"bias": "huber"}), ("window", {}),
    ]  # fmt: skip
    plain = resolve(found.root, by_answers({"bias": "dot", "window": 2}))
    assert plain.data == {"name": "mine", "bias": "dot", "window": 2}
    chosen = {"bias": "huber", "bias=huber.delta": 0.5, "window": 4}
    assert resolve(found.root, by_answers(chosen)).data["bias"] == {"kind": "huber", "delta": 0.5}
    assert found.point(by_answers(chosen)).spec.bias.delta.value == 0.5


def test_a_choice_in_a_choice_in_a_list_has_a_name_of_its_own():
    chain = {"chain": [{"choose": ["linear", {"kind": "mlp", "depth": {"choose": [1, 2]}}]}] * 2,
             "every": [1, 2]}  # fmt: skip
    names = [n for n, _, _ in choices(space(memory=chain).root)]
    assert names == [
        "memory.chain[0]", "memory.chain[0]=mlp.depth", "memory.chain[1]",
        "memory.chain[1]=mlp.depth",
    ]  # fmt: skip


def test_ways_are_counted_as_they_are_walked():
    found = space(
        bias={"choose": ["dot", "l2", {"kind": "lp", "p": {"choose": [1, 3]}}]},
        window={"range": [1, 9], "step": 4},
    )
    ways = list(every(found.root))
    assert count(found.root) == len(ways) == len({tuple(w.items()) for w in ways}) == 12
    assert ways[0] == {"bias": "dot", "window": 1}
    assert space(bias={"choose": ["dot", HUBER]}).size == math.inf


def test_chance_stays_in_the_range_and_takes_every_option():
    found = space(bias={"choose": ["dot", HUBER]}, window={"range": [1, 8], "log": True})
    ask, seen = by_chance(random.Random(0)), []
    for _ in range(200):
        seen.append(resolve(found.root, ask).answers)
    assert {answers["bias"] for answers in seen} == {"dot", "huber"}
    deltas = [a["bias=huber.delta"] for a in seen if a["bias"] == "huber"]
    assert all(0.1 <= d <= 10 for d in deltas)
    assert 0.3 < sum(d < 1 for d in deltas) / len(deltas) < 0.7, "log-uniform: half below 1"
    assert {a["window"] for a in seen} == set(range(1, 9))


def test_labels_of_options_that_read_alike_differ():
    found = space(bias={"choose": [{"kind": "lp", "p": 2}, {"kind": "lp", "p": 3}]})
    assert found.choices["bias"].labels == ("lp", "lp#2")


WRONG = {
    "bias: {choose: []}": "s.yaml:3:16 bias.choose: must be a list of at least one value: "
    "read '[]'",
    "bias: {choose: [l2, l2]}": "s.yaml:3:21 bias.choose[1]: given twice: read 'l2'",
    "bias: {choose: [l2, hubber]}": "s.yaml:3:21 bias: read 'hubber', allowed: dot, l2, lp, huber, "
    "robust, quantile, expr; did you mean 'huber'?",
    "window: {range: [4, 1]}": "s.yaml:3:17 window.range: the low end must be below the high end: "
    "read '[4, 1]'",
    "window: {range: [0, 4]}": "s.yaml:3:9 window: must be at least 1, or all: read '0'",
    "window: {range: [1, 4], lg: true}": "s.yaml:3:25 window.lg: unknown key: read 'lg', allowed: "
    "range, log, step; did you mean 'log'?",
    "optimizer: {rate: {range: [0, 1], log: true}}": "s.yaml:3:27 optimizer.rate.range: a range "
    "with log must lie above 0: read '[0, 1]'",
    "title: {choose: [a, b]}": "s.yaml:3:8 title: no choice is allowed here: this entry "
    "tells spaces apart",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_makes_no_sense_is_told_at_its_place(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(
        f"mnemic: 1\nname: mine\n{line}\nsearch: {{tasks: {{mqar: tiny}}}}\n"
    )
    with pytest.raises(InvalidSpec) as caught:
        load_space("s.yaml")
    assert str(caught.value).replace(": ", " ", 1) == WRONG[line]
