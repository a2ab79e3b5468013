"""From files, mappings and names to specs; every error at its place."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from mnemic.dsl import catalogue
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import load
from mnemic.dsl.reading import read_yaml
from mnemic.dsl.spec import Spec
from mnemic.dsl.writing import to_yaml
from mnemic.errors import InvalidSpec, UsageError

EXAMPLES: list[dict[str, Any]] = [
    {"bias": "l2", "optimizer": {"rate": "token"}},
    {"retention": "kl", "features": {"expr": "x*sigmoid(x)"}},
    {"retention": {"local": {"bregman": "w*log(w)"}, "decay": "1 - 2**(-5 - h)"}},
    {"retention": {"local": {"f-divergence": "chi2"}, "constraint": {"kind": "simplex"}}},
    {"retention": {"view": "ftrl", "global": {"elastic": {"l1": 0.1, "l2": "learned"}}}},
    {"optimizer": {"rate": {"normalized": True}}, "bias": {"kind": "lp", "p": 3}},
    {"optimizer": {"rate": {"from": "input", "normalized": True}}, "bias": "l2"},
    {"optimizer": {"method": "implicit", "rate": float("inf")}, "bias": "l2"},
    {"optimizer": {"method": "momentum", "momentum": {"from": "input", "on": "write"}}},
    {"optimizer": "muon", "memory": {"chain": ["mlp", {"kind": "glu"}], "every": [1, 4]}},
    {"keys": {"predict": "own", "value": "2*v"}, "notes": "one\ntwo\n", "title": "no"},
    {"features": {"kernel": "s", "readout": {"kernel": "exp(s)", "normalise": "row"}}},
    {"retention": {"decay": "1e-3"}, "source": {"paper": "yes", "where": "1e3"}},
    {"coefficients": {"y1": {"expr": "0.5"}}, "retention": {"decay": "y1"}},
]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def message(source: Any) -> str:
    with pytest.raises(InvalidSpec) as caught:
        load(source)
    return str(caught.value)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- sources ----


@pytest.mark.parametrize("name", catalogue.names())
def test_every_packaged_spec_loads_under_its_name(name: str) -> None:
    assert load(name).name == name


def test_names_of_packaged_specs_are_unique() -> None:
    assert len(list(catalogue.folder().rglob("*.yaml"))) == len(catalogue.names())


def test_a_path_a_mapping_and_plain_defaults(here: Path) -> None:
    path = write(here, "mine", "name: mine\n")
    assert load(path) == load("mine.yaml") == load({"name": "mine"}) == Spec(name="mine")


def test_unknown_sources() -> None:
    with pytest.raises(UsageError, match="no packaged spec is called 'deltnet'; did you mean 'de"):
        load("deltnet")
    with pytest.raises(UsageError, match=r"nowhere\.yaml: No such file"):
        load("nowhere.yaml")
    with pytest.raises(UsageError, match="a path, a mapping or a name, not int"):
        load(3)  # type: ignore[arg-type]
    for text in ("name: a\nbias: l2\n", "name: a\nbias: {expr: e**2/2}\n"):
        with pytest.raises(UsageError, match=r"not the text of a file; yaml\.safe_load makes"):
            load(text)


def test_a_folder_is_told_where_its_spec_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    for name in ("mine", "deltanet"):
        (here / name).mkdir()
        (here / name / "spec.yaml").write_text("mnemic: 1\nname: other\n")
    with pytest.raises(UsageError, match=r"^mine: not a file; .* whose spec is mine/spec\.yaml$"):
        load("mine")
    assert load("deltanet").name == "deltanet", "the packaged spec goes before a folder"


# ---- errors ----


def test_every_error_is_reported_at_once(here: Path) -> None:
    write(
        here,
        "wrong",
        "mnemic: 2\nname: Wrong\nbias: hubber\nwindow: some\nretention:\n  dekay: 0.9\n"
        "  local: {bregmann: w}\n  global: {kind: l3}\n"
        "optimizer: {method: mon, anchor: {chunk: 0}}\n"
        "memory:\n  chain: [linear, mlq]\n  every: [1, 2.5]\nweights: {kind: token, gamma: [1]}\n"
        "features: {kind: polynomial, degree: two}\nkeys: 3\n",
    )
    assert message("wrong.yaml").splitlines() == [
        "wrong.yaml:1:9: mnemic: must be 1, the version of the language: read '2'",
        "wrong.yaml:2:7: name: must be words of a-z and 0-9 joined by hyphens, the first letter"
        " no digit: read 'Wrong'",
        "wrong.yaml:3:7: bias: read 'hubber', allowed: dot, l2, lp, huber, robust, quantile, expr;"
        " did you mean 'huber'?",
        "wrong.yaml:4:9: window: must be a whole number, or all: read 'some'",
        "wrong.yaml:6:3: retention.dekay: unknown key: read 'dekay', allowed: view, local, global,"
        " link, decay, row_decay, phase, order, constraint, normalize; did you mean 'decay'?",
        "wrong.yaml:7:11: retention.local.bregmann: unknown key: read 'bregmann', allowed: kind,"
        " bregman, f-divergence; did you mean 'bregman'?",
        "wrong.yaml:8:18: retention.global.kind: read 'l3', allowed: none, l2, entropy,"
        " elastic, lq",
        "wrong.yaml:9:21: optimizer.method: read 'mon', allowed: gd, momentum, implicit, exact,"
        " muon, adam, lion, adagrad, flow, batch, nonparametric; did you mean 'muon'?",
        "wrong.yaml:9:42: optimizer.anchor.chunk: must be at least 1: read '0'",
        "wrong.yaml:11:19: memory.chain[1]: read 'mlq', allowed: linear, diagonal, mlp, glu,"
        " low-rank, nonparametric, interpolation, chain; did you mean 'mlp'?",
        "wrong.yaml:12:14: memory.every[1]: must be a whole number: read '2.5'",
        "wrong.yaml:13:31: weights.gamma: must be a number, an expression, a word or a mapping:"
        " read 'a list', allowed: learned, token, channel, outer",
        "wrong.yaml:14:38: features.degree: must be a whole number: read 'two'",
        "wrong.yaml:15:7: keys: must be a mapping: read '3'",
    ]


def test_a_list_whose_items_are_wrong_is_not_too_short(here: Path) -> None:
    write(here, "wrong", "mnemic: 1\nname: wrong\nmemory: {chain: [{depth: 2}], every: [2]}\n")
    assert message("wrong.yaml") == (
        "wrong.yaml:3:18: memory.chain[0]: a mapping without 'kind': allowed: linear, diagonal,"
        " mlp, glu, low-rank, nonparametric, interpolation, chain"
    )
    write(here, "wrong", "mnemic: 1\nname: wrong\nmemory: {chain: [], every: []}\n")
    assert "memory.chain: must have at least 1 item" in message("wrong.yaml")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("loss", "bias"), ("rate", "optimizer.rate"), ("learning_rate", "optimizer.rate"),
        ("optimiser", "optimizer"), ("alpha", "retention.decay"), ("huber", "bias"),
        ("retention.row-decay", "row_decay"), ("optimizer.decay", "retention.decay"),
        ("optimizer.betas", "beta2"), ("block.num_heads", "heads"), ("chunk", None),
    ],
)  # fmt: skip
def test_a_key_at_a_wrong_place_is_told_its_own(key: str, told: str | None) -> None:
    above, _, last = key.rpartition(".")
    with pytest.raises(InvalidSpec) as caught:
        load({"name": "x", above: {last: 1}} if above else {"name": "x", last: 1})
    (issue,) = (issue for issue in caught.value.issues if issue.message == "unknown key")
    assert issue.nearest == told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bias: l2\n", "x.yaml:1:1: name: is missing"),
        ("name: x\nbias: lp\n", "x.yaml:2:7: bias.p: is missing"),
        ("name: x\nbias: {}\n", "x.yaml:2:7: bias: a mapping without 'kind': allowed: dot, l2,"),
        (
            "name: x\ndecay: token\n",
            "x.yaml:2:1: decay: unknown key: read 'decay', allowed: mnemic, name, title, source,"
            " features, memory, bias, weights, window, retention, optimizer, coefficients, keys,"
            " readout, block, published, notes, extends; did you mean 'retention.decay'?",
        ),
        (
            "name: x\nbias: {kind: l2, delta: 3}\n",
            "x.yaml:2:18: bias.delta: unknown key: read 'delta', allowed: kind"
            " ('delta' is an option of huber)",
        ),
        (
            "name: x\nbias: {expr: e**2, name: mine}\n",
            "x.yaml:2:20: bias.name: unknown key: read 'name', allowed: kind, expr, smooth"
            " ('name' stands at the top of a spec)",
        ),
        (
            "name: x\nretention: {expr: w**4}\n",
            "x.yaml:2:13: retention.expr: unknown key: read 'expr', allowed: view, local, global,"
            " link, decay, row_decay, phase, order, constraint, normalize (an expression is written"
            ' {local: {bregman: "..."}} or {local: {f-divergence: "..."}})',
        ),
        (
            "name: x\nbias: {huber: 2}\n",
            "x.yaml:2:7: bias: a mapping without 'kind': allowed: dot, l2, lp, huber, robust,"
            " quantile, expr (a kind is told by its word: {kind: huber, ...})",
        ),
        (
            "name: x\ncoefficients: [a]\n",
            "x.yaml:2:15: coefficients: must be a mapping: read 'a list'",
        ),
        (
            "name: x\nkeys: {write: [k]}\n",
            "x.yaml:2:15: keys.write: must be a text or a mapping: read 'a list'",
        ),
        ("# nothing yet\n", "x.yaml:1:1: is empty; a spec has a name at least (name: my-rule)"),
        (
            "name: x\nfeatures: {kind: polynomial, a: 3}\n",
            "x.yaml:2:33: features.a: must be a list: read '3'",
        ),
        (
            "name: x\nretention: {decay: {from: input, init: [0.1, 0.2, 0.3]}}\n",
            "x.yaml:2:40: retention.decay.init: must be a number or must have at most 2"
            " items, not 3",
        ),
        ("name: x\nbias: [l2]\n", "x.yaml:2:7: bias: must be a word or a mapping with 'kind'"),
        ("name: x\nbais: l2\n", "x.yaml:2:1: bais: unknown key: read 'bais', allowed: mnemic,"),
        ("[name, x]\n", "x.yaml:1:1: must be a mapping: read 'a list'"),
        ("name: x\nretention: {global_: none}\n", "x.yaml:2:13: retention.global_: unknown key"),
        ("name: x\nretention: {decay: true}\n", "x.yaml:2:20: retention.decay: must be a number"),
        ("name: x\nmnemic: true\n", "x.yaml:2:9: mnemic: must be 1, the version of"),
        (
            "name: x\nbias: {expr: e*foo}\n",
            "x.yaml:2:14: bias.expr: unknown symbol (column 3): read 'foo', allowed: alpha,",
        ),
        (
            "name: x\nbias: {expr: mu*e**2}\n",
            "x.yaml:2:14: bias.expr: unknown symbol (column 1): read 'mu', allowed: alpha, e, eta,"
            " n, v, y, pi, inf (in a loss y is the prediction ŷ, not the read-out; e = ŷ − v of a"
            " coordinate, n = ‖ŷ − v‖; a coefficient of your own stands under coefficients:"
            " {mu: token})",
        ),
        (
            "name: x\nbias: l2\nretention: {local: {bregman: cosh(c*w)}}\n",
            "x.yaml:3:30: retention.local.bregman: unknown symbol (column 6): read 'c', allowed:"
            " alpha, eta, w, pi, inf (a coefficient of your own stands under coefficients:"
            " {c: token})",
        ),
        (
            "name: x\nbias: l2\nretention: {local: {bregman: x**2}}\n",
            "x.yaml:3:30: retention.local.bregman: unknown symbol (column 1): read 'x', allowed:"
            " alpha, eta, w, pi, inf (it is a function of w; a coefficient of your own stands under"
            " coefficients: {x: token})",
        ),
        (
            "name: x\nbias: {expr: k*e**2}\n",  # which no coefficient may be called
            "x.yaml:2:14: bias.expr: unknown symbol (column 1): read 'k', allowed: alpha, e, eta,"
            " n, v, y, pi, inf (in a loss y is the prediction ŷ, not the read-out; e = ŷ − v of a"
            " coordinate, n = ‖ŷ − v‖)",
        ),
        (
            "name: x\nbias: {expr: ln(1 + e**2)}\n",
            "x.yaml:2:14: bias.expr: unknown function (column 1): read 'ln', allowed: exp, log,",
        ),
        (
            "name: x\nbias: e**2/2\n",
            "x.yaml:2:7: bias: read 'e**2/2', allowed: dot, l2, lp, huber, robust, quantile, expr"
            ' (an expression is written {expr: "e**2/2"})',
        ),
        (
            "name: x\nretention:\n  decay: chanel\n",
            "x.yaml:3:10: retention.decay: unknown symbol: read 'chanel', allowed: learned, token,"
            " channel, outer, H, alpha, eta, h, t, pi, inf; did you mean 'channel'?",
        ),
        (
            "name: x\nbias: {expr: (y_hat - v)**2}\n",
            "x.yaml:2:14: bias.expr: unknown symbol (column 2): read 'y_hat', allowed: alpha, e,"
            " eta, n, v, y, pi, inf (in a loss y is the prediction ŷ, not the read-out; e = ŷ − v"
            " of a coordinate, n = ‖ŷ − v‖; a coefficient of your own stands under coefficients:"
            " {y_hat: token})",
        ),
    ],
)
def test_one_error(here: Path, text: str, expected: str) -> None:
    write(here, "x", text)
    assert message("x.yaml").startswith(expected)


def test_a_mapping_has_paths_without_positions() -> None:
    assert message({"name": "x", "bias": {"kind": "lp"}}) == "bias.p: is missing"
    assert message({"name": "x", 1: 2}) == "a key must be a string: read '1'"
    assert message({"name": "x", "window": 10**30}) == "window: an integer of more than 64 bits"
    assert message({"name": "x", "bias": {1.5}}) == "bias: must be plain data: read 'set'"
    assert message({"name": "x", "title": "\ud800"}).startswith("title: half a surrogate pair")


def test_what_contains_itself_ends() -> None:
    data: dict[str, Any] = {"name": "x"}
    data["memory"] = {"chain": [data], "every": [1]}
    assert "nested more than 32 deep" in message(data)


def test_only_the_first_twenty_issues_are_listed() -> None:
    lines = message({"name": "x", "published": [3] * 1000}).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 980 more"


# ---- extends ----


DECAY = "retention: {decay: token}"
RATE = "optimizer: {rate: token}"
NORMALIZED = "optimizer: {rate: {normalized: true}}"


def extended(here: Path, base: str, child: str) -> Spec:
    write(here, "base", f"name: base\n{base}")
    return load(write(here, "child", f"name: child\nextends: ./base.yaml\n{child}"))


@pytest.mark.parametrize(
    ("base", "child", "merged"),
    [
        ("bias: huber", "", "bias: huber"),
        ("bias: huber", "bias: {delta: 2}", "bias: {kind: huber, delta: 2}"),
        ("bias: {kind: lp, p: 3}", "bias: {smooth: 2}", "bias: {kind: lp, p: 3, smooth: 2}"),
        ("bias: {kind: huber, over: norm}", "bias: huber", "bias: huber"),
        ("bias: {kind: huber, over: norm}", 'bias: {expr: "e**4"}', 'bias: {expr: "e**4"}'),
        (DECAY, "retention: {view: ftrl}", "retention: {view: ftrl, decay: token}"),
        ("retention: {decay: token}", "retention: kl", "retention: kl"),
        (DECAY, "retention: {decay: {init: 0.9}}", "retention: {decay: {from: input, init: 0.9}}"),
        (DECAY, 'retention: {decay: {expr: "0.5"}}', 'retention: {decay: "0.5"}'),
        (RATE, "optimizer: {method: muon}", "optimizer: muon"),
        (RATE, "optimizer: {inner_steps: 2}", "optimizer: {rate: token, inner_steps: 2}"),
        (RATE, NORMALIZED, "optimizer: {rate: {from: input, normalized: true}}"),
        ("keys: {predict: own}", "keys: {value: 2*v}", "keys: {predict: own, value: 2*v}"),
        ("keys: {predict: own}", "keys: {predict: {expr: 2*k}}", "keys: {predict: 2*k}"),
        ("title: Base\nnotes: b\nsource: {paper: p}\npublished: [{where: w, rule: r}]", "", ""),
    ],
)  # fmt: skip
def test_a_base_is_merged(here: Path, base: str, child: str, merged: str) -> None:
    expected = load(write(here, "expected", f"name: child\n{merged}"))
    assert extended(here, base, child) == expected


def test_a_packaged_spec_is_a_base() -> None:
    mine = load({"name": "mine", "extends": "gated-deltanet", "retention": {"order": "after"}})
    assert (mine.retention.order, mine.bias, mine.title) == (
        "after",
        load("gated-deltanet").bias,
        None,
    )


def test_errors_point_into_the_file_they_come_from(here: Path) -> None:
    (here / "sub").mkdir()
    write(here / "sub", "root", "name: root\nwindow: 0\nbias: {kind: huber, delte: 2}\n")
    write(here / "sub", "base", "name: base\nextends: ./root.yaml\nretention: {local: k1}\n")
    write(here, "child", "name: child\nextends: sub/base.yaml\nbias: {over: nrm}\nweights: {}\n")
    starts = [line.split(": ")[:2] for line in message("child.yaml").splitlines()]
    assert starts == [
        ["child.yaml:3:14", "bias.over"],
        ["child.yaml:4:10", "weights"],
        ["sub/base.yaml:3:20", "retention.local"],
        ["sub/root.yaml:2:9", "window"],
        ["sub/root.yaml:3:21", "bias.delte"],
    ]


def test_combinations_point_into_the_file_they_come_from(here: Path) -> None:
    with pytest.raises(InvalidSpec) as caught:
        extended(here, "optimizer: {anchor: {chunk: 4}}", "retention: {order: before}")
    assert str(caught.value).startswith(
        f"{here}/child.yaml:3:20: retention.order: under a chunk an"
    )
    with pytest.raises(InvalidSpec) as caught:
        extended(here, "retention: {order: before}", "optimizer: {anchor: {chunk: 4}}")
    assert str(caught.value).startswith(f"{here}/base.yaml:2:20: retention.order: under a chunk an")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("./child.yaml", "a spec cannot extend itself, by way of others either"),
        ("deltnet", "no packaged spec is called 'deltnet'; did you mean 'deltanet'?"),
        ("./none.yaml", "cannot read the base: none.yaml: No such file or directory"),
        ("./list.yaml", "the base is not a mapping: list.yaml"),
        ("[a]", "must be the name of a packaged spec or a path"),
    ],
)
def test_a_base_that_cannot_be_used(here: Path, value: str, expected: str) -> None:
    write(here, "list", "[1]\n")
    write(here, "child", f"name: child\nextends: {value}\n")
    assert message("child.yaml") == f"child.yaml:2:10: extends: {expected}"


def test_cycles_and_towers(here: Path) -> None:
    for i in range(10):
        write(here, f"s{i}", f"name: s{i}\nextends: ./s{i + 1}.yaml\n")
    assert message("s0.yaml") == "s8.yaml:2:10: extends: more than 8 bases, one on another"
    write(here, "s3", "name: s3\nextends: ./s1.yaml\n")
    assert message("s1.yaml").startswith("s3.yaml:2:10: extends: a spec cannot extend itself")


# ---- writing and hashing ----


@pytest.mark.parametrize("name", catalogue.names())
def test_a_packaged_spec_is_written_and_read_again(name: str) -> None:
    written_and_read_again(load(name))


@pytest.mark.parametrize("example", EXAMPLES, ids=json.dumps)
def test_written_and_read_again(example: dict[str, Any]) -> None:
    written_and_read_again(load({"name": "x", **example}))


def written_and_read_again(spec: Spec) -> None:
    again = load(read_yaml(to_yaml(spec), "again").data)
    assert again == spec
    assert spec_hash(again) == spec_hash(spec)


def test_the_written_form() -> None:
    spec = load(
        {"name": "x", "notes": "one\ntwo\n", **EXAMPLES[8], "retention": {"decay": "token"}}
    )
    assert to_yaml(spec) == (
        "# yaml-language-server: $schema=mnemic.schema.json\nmnemic: 1\nname: x\nretention:\n"
        '  decay: token\noptimizer:\n  method: momentum\n  momentum:\n    from: input\n    "on":'
        " write\nnotes: |\n  one\n  two\n"
    )


def test_the_hash_is_of_the_meaning() -> None:
    plain = load({"name": "x"})
    spelled = {"name": "y", "title": "Y", "notes": "n", "bias": {"kind": "dot"}, "optimizer": "gd"}
    assert spec_hash(plain) == spec_hash(load(spelled))
    hashes = {spec_hash(load({"name": "x", **example})) for example in EXAMPLES}
    assert len(hashes) == len(EXAMPLES)
    assert len(spec_hash(plain)) == 64


# ---- any input ----

WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        """name mnemic bias kind l2 lp p huber delta expr e x**2 retention local global decay token
        order before kl lq memory chain every mlp linear nonparametric optimizer method rate muon
        exact window all weights geometric keys predict own k readout bonus features kernel s
        published extends coefficients a from input per key value init activation block""",
    )
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=examples(400, 100), deadline=None)
@given(st.dictionaries(st.sampled_from(list(Spec.model_fields)) | WORDS, VALUES, max_size=5))
def test_any_mapping_loads_or_is_refused(mapping: dict[str, Any]) -> None:
    for source in (mapping, {"name": "x", **mapping}):
        with contextlib.suppress(InvalidSpec):
            written_and_read_again(load(source))


def test_the_language_is_light() -> None:
    """Next to pydantic, which it is written with; seconds would tell the machine's."""
    program = (
        "from time import process_time as now; a = now(); import pydantic.main, yaml; b = now();"
        "import mnemic.dsl.load, sys; c = now();"
        "print((c - b) / (b - a), 'torch' in sys.modules, 'sympy' in sys.modules)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ,
        ).stdout.split()
        for _ in range(3)
    ]
    assert min(float(run[0]) for run in runs) < 2
    assert all(run[1:] == ["False", "False"] for run in runs)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"speed": 1}, ["unknown key", "cannot be read"]),
        ({"optimizer": {"method": "mon"}}, ["read 'mon'", "cannot be read"]),
        ({"optimizer": {"rate": {"frm": "input"}}}, ["unknown key", "cannot be read"]),
        ({"window": 0, "speed": 1}, ["window", "unknown key", "cannot be read"]),
    ],
)
def test_wrong_keys_and_wrong_expressions_are_told_at_once(more: Any, words: list[str]) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        load({"name": "x", "bias": {"expr": "e**"}, **more})
    assert len(refusal.value.issues) == len(words)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_an_expression_is_not_blamed_for_what_was_left_out() -> None:
    """A coefficient that cannot be read is no unknown symbol of the expressions that name it."""
    wrong = {"coefficients": {"a": {"from": "sky"}}, "bias": {"expr": "a*e**2"}}
    with pytest.raises(InvalidSpec) as refusal:
        load({"name": "x", **wrong})
    assert len(refusal.value.issues) == 1
    with pytest.raises(InvalidSpec) as refusal:
        load({"name": "x", "speed": 1, "bias": {"expr": "b*e**2"}})
    assert len(refusal.value.issues) == 2


def test_a_solver_is_named_by_a_bare_word() -> None:
    given = {"mnemic": 1, "name": "x", "bias": "l2", "window": "all",
             "retention": {"global": {"l2": 1}}}  # fmt: skip
    short, long = (
        load({**given, "optimizer": {"method": "exact", "solver": solver}})
        for solver in ("conjugate-gradients", {"kind": "conjugate-gradients"})
    )
    assert short == long
    assert short.optimizer.solver.kind == "conjugate-gradients"
    with pytest.raises(InvalidSpec, match=r"solver.*read 'cholesk'.*did you mean 'cholesky'"):
        load({**given, "optimizer": {"method": "exact", "solver": "cholesk"}})
