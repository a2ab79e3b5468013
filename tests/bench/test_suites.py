"""Long runs, decoding and forms over every spec, at lengths of a test."""

import json
import math
from pathlib import Path

import pytest
import torch

import mnemic
from mnemic.bench import decode, forms, learn, long, suites, table
from mnemic.bench.store import Store
from mnemic.bench.text import embedded, text
from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.cost_symbols import T
from mnemic.compiler.rule import Levels
from mnemic.dsl.catalogue import names
from mnemic.dsl.hashing import spec_hash
from mnemic.errors import CheckFailed, UsageError
from mnemic.pipeline import read

ONE = {"mnemic": 1, "name": "mine", "bias": "l2"}
DOT = {**ONE, "bias": "dot"}


@pytest.mark.some(4)
@pytest.mark.few
@pytest.mark.parametrize("name", names())
def test_the_state_keeps_its_bytes(name):
    """They do not grow with the context, unless the costs say so."""
    compiled = mnemic.compile(name)
    _, _, states = decode.started(compiled, (64, 192), dim=16, heads=1)
    sizes = {context: decode.size_of(state) for context, state in states.items()}
    known = cost(compiled.rule)
    levels = isinstance(compiled.rule, Levels)
    assert (sizes[64] == sizes[192]) == (levels or not known.state.has(T))


@pytest.mark.some(4)
@pytest.mark.parametrize(
    "name",
    ["gated-deltanet", "huber-norm", "rls-geometric", "gateloop", "titans", "softmax-attention"],
)
def test_a_long_run_in_short(name):
    found = long.run(mnemic.compile(name), 2048)
    assert found.passed
    assert found.precisions["float32"].worst < 1e-5
    assert 1e-4 < found.precisions["bfloat16"].worst < 3e-3


def test_memories_that_grow_run_over_fewer_tokens():
    growths = {"gated-deltanet": 0, "swa": 0, "log-linear": 0, "softmax-attention": 1,
               "kernel-regression": 2}  # fmt: skip
    assert {name: long.growth(mnemic.compile(name)) for name in growths} == growths


def test_features_for_short_texts_get_no_longer_ones():
    found = long.run(mnemic.compile({**ONE, "features": {"kind": "cosine", "length": 1500}}), 4096)
    assert found.length == 1500
    assert mnemic.compile("gla").spec.features.longest is None


def test_a_run_that_blows_up_fails():
    """ℓ_3 at ordinary rates: what `check` warns of."""
    wild = mnemic.compile({**ONE, "bias": {"kind": "lp", "p": 3}, "optimizer": {"rate": 1}})
    found = long.run(wild, 2048)
    assert found.place == "outside"
    assert found.warned
    assert not found.passed


def test_phases_stay_exact_over_long_texts():
    """An angle that grows to thousands loses digits in float32; one within a turn does not."""
    compiled = mnemic.compile("lru")
    x = torch.ones(1, 20_000, 1, 2)
    phase = torch.full_like(x, 0.3)
    v = torch.ones(1, 20_000, 1, 4)
    given = {"q": x, "k": x, "v": v, "log_alpha": torch.full_like(x, -0.05), "phase": phase}
    out, _ = compiled(**given)
    wide = {name: z.double() for name, z in given.items()}
    torch.testing.assert_close(out.double(), compiled(**wide)[0], rtol=0, atol=2e-5)


def test_least_squares_that_forget_stay_symmetric():
    """The error of P is divided by the decay at every step: what is not symmetric would grow."""
    rng = torch.Generator().manual_seed(0)
    k = torch.nn.functional.normalize(
        torch.randn(1, 3000, 1, 6, generator=rng).double() + 0.5, dim=-1
    )
    v = torch.randn(1, 3000, 1, 4, generator=rng).double()
    log_gamma = torch.full((1, 3000, 1), -0.05).double()
    compiled = mnemic.compile("rls-geometric")
    out, state = compiled(k, k, v, log_gamma=log_gamma, form="chunk", output_final_state=True)
    token, _ = compiled(k, k, v, log_gamma=log_gamma, form="recurrent")
    torch.testing.assert_close(out, token, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(state["P"], state["P"].mT, rtol=0, atol=1e-12)


def test_text_repeats_itself():
    found = bytes(text(20_000).to(torch.uint8).numpy()).split(b"\n")
    again = sum(line in found[max(i - 25, 0) : i] for i, line in enumerate(found) if len(line) > 4)
    assert again / len(found) > 0.15
    assert torch.equal(text(500), text(20_000)[:500])


def test_embeddings_correlate():
    x = embedded(text(5000), 16)[0]
    torch.testing.assert_close(x.square().mean(-1), torch.ones(5000).double())
    unit = torch.nn.functional.normalize(x, dim=-1)
    assert 0.3 < float((unit[1:] * unit[:-1]).sum(-1).mean()) < 0.9


@pytest.mark.full
def test_forms_take_any_spec():
    found = forms.measured(mnemic.compile("ttt-mlp"), 64)
    assert set(found) == {"forward", "forward+backward"}
    (first, second) = forms.compare_times("ttt-mlp", found)
    assert first.value == found["forward"]["recurrent"] / found["forward"]["chunk"]
    assert forms.measured(mnemic.compile("elastic-net"), 64).keys() == {"reason"}
    assert second.what == "ttt-mlp, chunk over token by token, forward+backward"


def test_a_tree_gets_what_its_levels_hold():
    readout = {"levels": {"from": "input", "activation": "softplus"}, "max_levels": 7}
    tree = mnemic.compile({**DOT, "readout": readout})
    assert set(forms.measured(tree, 128)) == {"forward", "forward+backward"}
    assert long.run(tree, 2048).length == 64
    decoded = suites.SUITES["decode"].measure(tree, 128)
    assert list(decoded["seconds"]) == ["32"]


@pytest.mark.full
def test_recall_needs_the_memory(monkeypatch):
    """A block whose memory is forgotten at once stays blind."""
    monkeypatch.setattr(learn, "TASKS", {"mqar": learn.TASKS["mqar"]})
    found = {
        decay: learn.run(mnemic.compile({**DOT, "retention": {"decay": decay}}), 150)["mqar"]
        for decay in (1.0, 1e-6)
    }
    assert found[1.0]["last"] < 0.7 * learn.BLIND < 0.9 * learn.BLIND < found[1e-6]["last"]
    assert found[1e-6]["last"] < learn.FALLEN * found[1e-6]["first"]


def test_a_training_that_fails_is_kept(monkeypatch):
    def fail(*given):
        raise CheckFailed("the loss is no longer finite")

    monkeypatch.setattr("mnemic.models.train.train", fail)
    found = learn.run(mnemic.compile("gla"), 1)
    assert found["bytes"]["reason"] == "the loss is no longer finite"
    assert math.isnan(found["mqar"]["last"])


# -- what is kept -----------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """A suite that counts what it measures."""
    seen = []

    def measure(compiled, length):
        seen.append(compiled.spec.name)
        return {"value": float(length)}

    def figures(name, found):
        yield from ()

    monkeypatch.setitem(suites.SUITES, "long", suites.Suite(2048, measure, figures, ""))
    return seen


def test_a_broken_run_goes_on(counted, tmp_path):
    path = tmp_path / "results" / "long.json"
    suites.run("long", suites.Asked(("gla",), out=path))
    suites.run("long", suites.Asked(("gla", "retnet"), out=path))
    assert counted == ["gla", "retnet"]
    suites.run("long", suites.Asked(("gla",), out=path, again=True))
    assert counted == ["gla", "retnet", "gla"]
    suites.run("long", suites.Asked(("gla",), length=1024, out=path))
    assert counted[3:] == ["gla"], "another length is another measurement"
    kept = json.loads(path.read_text())
    assert kept["command"] == "mnemic bench long"
    assert list(kept["results"]) == ["gla"]


def test_another_file_is_not_touched(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"a": 1}')
    with pytest.raises(UsageError, match="not a result of mnemic bench"):
        Store(path, "mnemic bench long", {})
    assert path.read_text() == '{"a": 1}'


def test_numbers_that_are_none_are_kept_as_null(tmp_path):
    path = tmp_path / "x.json"
    Store(path, "c", {}).keep("a", "k", {"worst": float("nan"), "deep": {"x": [float("inf"), 1.0]}})
    kept = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert kept["results"]["a"]["worst"] is None
    assert kept["results"]["a"]["deep"] == {"x": [None, 1.0]}


# -- the page ---------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path):
    """Results of three suites, one of a spec that has changed since."""

    def keep(suite, name, result, key=None):
        path, setting = tmp_path / f"{suite}.json", {"torch": "2", "steps": 9}
        kept = Store(path, f"mnemic bench {suite.partition('-')[0]}", setting)
        kept.keep(name, key or spec_hash(read(name)), result)

    found = {
        "float32": {"finite": True, "worst": 2e-7, "last": 0.0},
        "bfloat16": {"finite": False, "worst": 1.0, "last": 1.0},
    }
    ran = {"length": 4096, "place": "unknown", "warned": True, "passed": False, "precisions": found}
    keep("long", "gla", ran)
    keep("learn", "gla", {task: {"first": 3.0, "last": 2.9} for task in ("mqar", "bytes")})
    keep("decode", "lru", {"bytes": {"64": 4096, "1024": 4096}, "fixed": True, "ratio": 1.02}, "x")
    keep("learn-short", "gla", {task: {"first": 9.0, "last": 1.0} for task in ("mqar", "bytes")})
    keep("recall", "gla", {"tokens": 16, "cosines": [0.5, 0.1], "late": 0.1, "share": 0.2})
    keep("forms", "titans", {"forward": {"chunk": 0.5, "recurrent": 3.0}})
    return tmp_path


def test_a_page_of_what_was_kept(results):
    found = table.page(results)
    row = "2.0e-07 | NaN | unknown ! | 3.00 → 2.90 | 3.00 → 2.90 | 0.50 → 0.10 |"
    assert f"| gla |  |  | 4,096 | {row}" in found
    assert "| lru * | 4,096 | 1.02 |" in found
    assert "| titans | 6.0 (3.00 s, 0.50 s) | no chunk form |" in found
    assert "- A loss that did not fall: gla." in found
    assert "an error of exactly 0: gla." in found
    assert "less than 0.25 of the first: gla." in found
    assert "the state being fixed: none." in found
    assert "- Not measured by `decode`: atlas, " in found
    assert "torch 2, steps 9" in found


def test_what_another_benchmark_kept_is_left_out_and_nothing_else_is(results):
    found = table.page(results)
    (results / "search_curves.json").write_text('{"made_by": "benchmarks/search.py curves"}')
    Store(results / "inductor.json", "tests/inductor.py", {}).keep("gla", "k", {"right": True})
    assert table.page(results) == found
    (results / "other.json").write_text('{"made_by": "somebody"}')
    with pytest.raises(UsageError, match=r"other\.json: not a result of mnemic bench"):
        table.page(results)


def test_the_page_of_the_kept_results_is_the_printed_one_but_for_what_changed():
    """The command of docs/measured.md runs on the folder as it is kept."""
    root = Path(__file__).parents[2]
    rows = table.page(root / "benchmarks" / "results").splitlines()
    printed = (root / "docs" / "measured.md").read_text(encoding="utf-8").splitlines()
    assert sum(row.startswith("|") for row in rows) >= sum(row.startswith("|") for row in printed)


def test_a_page_of_nothing(tmp_path):
    with pytest.raises(UsageError, match="no results of"):
        table.page(tmp_path)
