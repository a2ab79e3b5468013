"""Long runs, decoding and forms over every spec, at lengths of a test."""

import json

import pytest
import torch

import mnemic
from mnemic.bench import decode, forms, long, suites
from mnemic.bench.store import Store
from mnemic.bench.text import embedded, text
from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.cost_symbols import T
from mnemic.dsl.catalogue import names
from mnemic.errors import UsageError

ONE = {"mnemic": 1, "name": "mine", "bias": "l2"}


@pytest.mark.parametrize("name", names())
def test_the_state_keeps_its_bytes(name):
    """They do not grow with the context, unless the costs say so."""
    compiled = mnemic.compile(name)
    _, _, states = decode.started(compiled, (64, 192), dim=16, heads=1)
    sizes = {context: decode.size_of(state) for context, state in states.items()}
    known = cost(compiled.rule)
    levels = compiled.rule.levels
    assert (sizes[64] == sizes[192]) == (bool(levels) or not known.state.has(T))


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
    given = {"q": x, "k": x, "v": x, "log_alpha": torch.full_like(x, -0.05), "phase": phase}
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


def test_forms_take_any_spec():
    found = forms.measured(mnemic.compile("ttt-mlp"), 64)
    assert set(found) == {"forward", "forward+backward"}
    (first, second) = forms.told("ttt-mlp", found)
    assert first.value == found["forward"]["recurrent"] / found["forward"]["chunk"]
    assert forms.measured(mnemic.compile("elastic-net"), 64).keys() == {"reason"}
    assert second.what == "ttt-mlp, chunk over token by token, forward+backward"


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
