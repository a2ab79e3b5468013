"""Several mistakes in one spec are all told at once, in the order of their lines, and no others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec, Issue
from tests.dsl.test_combinations import CASES, Case, case_name

WRONG = """\
mnemic: 1
name: my-rule
bias: {kind: hubber, delta: 1}
features: {kind: polynomial, degree: 99}
memory:
  kind: mlp
  depth: 2
  activation: "tanh(x"
retention:
  decay: tokn
  order: befor
  normalize: rows
optimizer:
  method: muon
  rate: {from: input, init: -1}
  momentm: 0.9
  ns_steps: 50
window: 0
coefficients:
  lambda: 2
  mine: {from: sky}
keys:
  erase: "k*mine"
  write: "k*zeta"
block:
  hybrid: gate
  segment: 16
  gate: sigmod
  head: 4
"""

TOLD = [
    "w.yaml:3:14: bias.kind: read 'hubber', allowed: dot, l2, lp, huber, robust, quantile, expr;"
    " did you mean 'huber'?",
    "w.yaml:4:38: features.degree: must be at most 8: read '99'",
    "w.yaml:8:15: memory.activation: a bracket is opened and never closed (column 5): read"
    " 'tanh(x'",
    "w.yaml:10:10: retention.decay: unknown symbol: read 'tokn', allowed: learned, token, channel,"
    " outer, H, a0, a1, a2, alpha, eta, h, lambda, t, pi, inf; did you mean 'token'?",
    "w.yaml:11:10: retention.order: read 'befor', allowed: before, after; did you mean 'before'?",
    "w.yaml:15:29: optimizer.rate.init: must be at least 0: read '-1'",
    "w.yaml:16:3: optimizer.momentm: unknown key: read 'momentm', allowed: method, rate, momentum,"
    " beta2, epsilon, micro_steps, inner_steps, from, ns_steps, every, rate_at, anchor, solver;"
    " did you mean 'momentum'?",
    "w.yaml:17:13: optimizer.ns_steps: must be at most 20: read '50'",
    "w.yaml:18:9: window: must be at least 1, or all: read '0'",
    "w.yaml:20:11: coefficients.lambda: a coefficient's name must not be a keyword of Python: read"
    " 'lambda'; did you mean 'lam'?",
    "w.yaml:21:16: coefficients.mine.from: read 'sky', allowed: parameter, input",
    "w.yaml:23:10: keys.erase: roles of keys are sides of a linear memory's step, and this one has"
    " none (use memory: linear, or leave the role out)",
    "w.yaml:24:10: keys.write: unknown symbol (column 3): read 'zeta', allowed: a0, a1, a2, alpha,"
    " erase, eta, k, lambda, predict, pi, inf; did you mean 'eta'?",
    "w.yaml:24:10: keys.write: roles of keys are sides of a linear memory's step, and this one has"
    " none (use memory: linear, or leave the role out)",
    "w.yaml:26:3: block.attention_window: the attention of hybrid: gate slides over a window, which"
    " needs a size (write attention_window: 64)",
    "w.yaml:27:12: block.segment: segments belong to the memory as context (write hybrid: context,"
    " or leave it out)",
]


def told(source: Any) -> list[str]:
    with pytest.raises(InvalidSpec) as refusal:
        load(source)
    return str(refusal.value).splitlines()


def test_mistakes_of_all_kinds_and_depths_in_the_order_of_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(WRONG)
    found = told("w.yaml")
    assert found[: len(TOLD)] == TOLD
    gate, head = found[len(TOLD) :]
    assert gate.startswith("w.yaml:28:9: block.gate: unknown symbol: read 'sigmod', allowed: none,")
    assert gate.endswith("did you mean 'sigmoid'?")
    assert head.startswith("w.yaml:29:3: block.head: unknown key: read 'head', allowed: heads,")


def test_a_text_without_a_name_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("retention: {decay: tokn}\n")
    missing, symbol = told(path)
    assert missing == f"{path}:1:1: name: is missing"
    assert symbol.startswith(f"{path}:1:20: retention.decay: unknown symbol: read 'tokn'")


def test_what_yaml_does_not_allow_is_told_beside_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("name: x\nbias: hubber\nwindow: 2\nwindow: 3\nretention: {decay: tokn}\n")
    bias, twice, decay = told(path)
    assert bias.startswith(f"{path}:2:7: bias: read 'hubber'")
    assert twice == f"{path}:4:1: a key given twice: read 'window' (first at 3:1)"
    assert decay.startswith(f"{path}:5:20: retention.decay: unknown symbol: read 'tokn'")


def test_a_base_that_is_not_there_is_told_beside_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        "name: x\nextends: gated-deltanett\nbias: {delta: 2}\nretention: {decay: 1.5}\nwindow: no\n"
        "readout: {bonus: delta, levels: lam}\noptimizer: {inner_steps: 3}\n"
    )
    base, decay, window = told(path)
    assert base.startswith(f"{path}:2:10: extends: no packaged spec is called 'gated-deltanett'")
    assert decay == f"{path}:4:20: retention.decay: must be in (0, 1]: read '1.5'"
    assert window.startswith(f"{path}:5:9: window: ")


def test_a_base_and_what_changes_it_are_told_each_in_its_file(tmp_path: Path) -> None:
    base, path = tmp_path / "base.yaml", tmp_path / "w.yaml"
    base.write_text("name: b\nwindow: 0\nretention: {decay: 2}\nretention: 3\n")
    path.write_text("name: x\nextends: ./base.yaml\nbias: {expr: e*(}\n")
    places = [line.rpartition(" ")[0].split(": ")[0] for line in told(path)]
    assert places == [f"{path}:3:14", f"{base}:2:9", f"{base}:3:20", f"{base}:4:1"]


UNRELATED = {"speed": 1, "title": 3}


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_what_a_rule_refuses_is_told_beside_other_mistakes(case: Case) -> None:
    alone = told({"name": "x", **case[1]})
    beside = told({"name": "x", **case[1], **UNRELATED})
    assert {*alone} <= {*beside}
    assert len(beside) == len(alone) + len(UNRELATED)


def leaves(data: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places of a mapping at which no mapping stands."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*place, key))
        else:
            yield (*place, key)


def changed(data: dict[str, Any], place: tuple[str, ...], key: str, value: Any) -> dict[str, Any]:
    """The data with another key and value at a place."""
    first, *others = place
    if not others:
        return {(key if k == first else k): (value if k == first else v) for k, v in data.items()}
    return {**data, first: changed(data[first], tuple(others), key, value)}


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_nothing_sound_is_blamed_for_a_mistake_elsewhere(case: Case) -> None:
    """Each value of a sound spec is made wrong, and each key misspelt: only that is told of."""
    sound = {"name": "x", **case[3]}
    for place in leaves(case[3]):
        spoilt = {"nonsense": [1]}
        for found in _issues(changed(sound, place, place[-1], spoilt)):
            assert found.where.startswith(".".join(place)), (place, found)
        if place[0] == "coefficients":  # another name is another coefficient
            continue
        value = _at(sound, place)
        for found in _issues(changed(sound, place, f"{place[-1]}z", value)):
            kind = found.message in ("is missing", "a mapping without 'kind'")
            assert found.where == ".".join((*place[:-1], f"{place[-1]}z")) or kind, (place, found)


def _issues(data: dict[str, Any]) -> tuple[Issue, ...]:
    with pytest.raises(InvalidSpec) as refusal:
        load(data)
    return refusal.value.issues


def _at(data: Any, place: tuple[str, ...]) -> Any:
    for step in place:
        data = data[step]
    return data
