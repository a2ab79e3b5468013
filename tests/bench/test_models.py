"""Whole models beside a transformer: the same size, the same text, turns, and the page of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mnemic.bench.models import curves, decoding, page, subjects, suites, training, turns
from mnemic.bench.models.curves import Lesson
from mnemic.bench.models.subjects import EACH, TRANSFORMER, make, parameters
from mnemic.errors import UsageError
from mnemic.hf.shape import Shape

TINY = Shape(2, 16, 1, vocabulary=256, length=4096)
SHORT = Lesson(
    steps=3, blocks=1, dim=16, heads=1, length=24, batch=2, warmup=1, every=2, held_out=3
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (training, decoding):
        monkeypatch.setattr(module, "SHAPE", TINY)


def test_the_transformer_is_as_large_and_begins_alike() -> None:
    ours, other = make("gated-deltanet", subjects.SHAPE), make(TRANSFORMER, subjects.SHAPE)
    assert parameters(other) == pytest.approx(parameters(ours), rel=1e-3)
    assert parameters(ours) == pytest.approx(2e6, rel=0.02)
    for name in ("embed_tokens.weight", "layers.0.self_attn.q_proj.weight"):
        spread = other.get_parameter(f"model.{name}").detach().std()
        assert spread.item() == pytest.approx(192**-0.5, rel=0.02)


def test_each_class_with_a_chunk_form_is_met() -> None:
    from packaged import FACTS, chunked

    def kinds(names: Any) -> set[str]:
        return {t for name in names for t in FACTS[name]["traits"] if t.startswith("class ")}

    assert kinds(EACH) == kinds(chunked())
    assert len(EACH) == len(kinds(EACH))


def test_models_learn_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[torch.Tensor]] = {}
    nats = curves._nats
    monkeypatch.setattr(
        curves, "_nats", lambda model, batch: seen[name].append(batch) or nats(model, batch)
    )
    found = {}
    for name in (TRANSFORMER, "gated-deltanet*2, swa"):
        seen[name] = []
        found[name] = curves.learn(name, 1, SHORT)
    one, other = (torch.cat(batches) for batches in seen.values())
    assert one.equal(other)
    for told in found.values():
        assert told["steps"] == [0, 2, 3]
        assert told["bits"][-1] < told["bits"][0]
        assert told["seconds"] == sorted(told["seconds"])
    assert curves.learn(TRANSFORMER, 1, SHORT)["bits"] == found[TRANSFORMER]["bits"]
    assert curves.learn(TRANSFORMER, 2, SHORT)["bits"] != found[TRANSFORMER]["bits"]


def test_a_broken_run_of_curves_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def run(name: str, seed: int, lesson: Lesson) -> dict[str, Any]:
        asked.append((name, seed))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return {"parameters": 1, "steps": [0, lesson.steps], "seconds": [0.0, 1.0], "bits": [8, 2]}

    monkeypatch.setattr(curves, "run", run)
    out = tmp_path / "curves.json"
    with pytest.raises(KeyboardInterrupt):
        suites.run("curves", suites.Asked(("gla",), 5, out))
    suites.run("curves", suites.Asked(("gla",), 5, out))
    assert asked == [(TRANSFORMER, 0), ("gla", 0), (TRANSFORMER, 1), (TRANSFORMER, 1),
                     ("gla", 1), (TRANSFORMER, 2), ("gla", 2)]  # fmt: skip
    assert len(json.loads(out.read_text())["results"]) == 6
    asked.clear()
    with pytest.raises(UsageError, match="no packaged spec is called 'no-such-spec'"):
        suites.run("curves", suites.Asked(("deltanet", "no-such-spec"), 5, out))
    assert asked == []


@pytest.mark.full
def test_a_curve_of_a_process_of_its_own() -> None:
    assert curves.run(TRANSFORMER, 1, SHORT)["bits"] == curves.learn(TRANSFORMER, 1, SHORT)["bits"]


def test_turns_are_taken_and_the_least_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], []

    def call(name: str, *spent: float) -> turns.Run:
        times = iter(spent)

        def run() -> None:
            calls.append(name)
            clock[0] += next(times)

        return run

    monkeypatch.setattr(turns.time, "process_time", lambda: clock[0])
    best = turns.in_turns({"a": call("a", 9, 3, 2, 4, 3, 3, 3, 3), "b": call("b", *[1] * 8)})
    assert best == {"a": 2, "b": 1}
    assert calls[:6] == ["a", "b"] * 3
    calls.clear()
    assert turns.in_turns({"a": call("a", 20, 30, 25)}) == {"a": 20}, "long rounds all count"


@pytest.mark.usefixtures("tiny")
def test_training_is_timed_with_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "LENGTHS", (16, 32))
    found = training.measure("gated-deltanet", 32)
    assert list(found["seconds"]) == ["16", "32"]
    assert all(s["model"] > 0 and s[TRANSFORMER] > 0 for s in found["seconds"].values())
    assert found["parts"].keys() == {"model", "parts"}
    model: Any = make("gated-deltanet", TINY)
    training._alone(model, training._tokens(16))()
    left = {name for name, p in model.named_parameters() if p.grad is None}
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in left} == {
        "memory_norm", "feed_forward_norm", "norm",
    }  # fmt: skip


@pytest.mark.usefixtures("tiny")
def test_decoding_is_timed_behind_the_same_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "CONTEXTS", (8, 16))
    monkeypatch.setattr(decoding, "PIECE", 4)
    found = {name: decoding.measure(name, 16) for name in ("gated-deltanet", "softmax-attention")}
    for one in found.values():
        assert one["seconds"]["8"].keys() == {"model", TRANSFORMER, decoding.STATIC}
    pair = 2 * 2 * 16 * 4  # keys and values of two blocks of 16 channels, four bytes each
    sizes = found["softmax-attention"]["bytes"]
    assert [sizes[n][TRANSFORMER] for n in ("8", "16")] == [8 * pair, 16 * pair]
    assert sizes["16"]["model"] - sizes["8"]["model"] == 8 * pair
    fixed = found["gated-deltanet"]["bytes"]
    assert fixed["8"]["model"] == fixed["16"]["model"]
    monkeypatch.setattr(decoding, "PATIENCE", -1.0)
    assert decoding.measure("gated-deltanet", 16)["seconds"] == {}


def test_a_moment_lies_between_two_evaluations() -> None:
    assert page.at([0.0, 2.0, 4.0], [8.0, 4.0, 3.0], 3.0) == 3.5
    assert page.at([0.0, 2.0], [8.0, 4.0], 2.0) == 4.0


def kept(folder: Path, suite: str, results: dict[str, Any]) -> None:
    content = {
        "command": f"mnemic bench {suite}",
        "setting": {"torch": "1", "sizes": "small"},
        "results": {name: {"key": "k", "date": "2026-01-02", **x} for name, x in results.items()},
    }
    (folder / f"{suite}.json").write_text(json.dumps(content))


def test_the_page_tells_what_was_kept(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no curves\.json, training\.json, decoding\.json$"):
        page.write(tmp_path, tmp_path / "beside.md")
    curve = {"parameters": 10, "steps": [0, 5, 10]}
    kept(tmp_path, "curves", {
        "transformer seed 0": {**curve, "seconds": [0, 2, 4], "bits": [8, 4, 3]},
        "gla seed 0": {**curve, "seconds": [0, 4, 8], "bits": [8, 3, 2]},
        "gla seed 1": {**curve, "seconds": [0, 4, 8], "bits": [8, 3, 2.2]},
    })  # fmt: skip
    times = {"model": 0.5, "transformer": 1.0, "transformer, static cache": 0.8}
    kept(tmp_path, "training", {
        "gla": {"seconds": {"512": times, "2048": times}, "parts": {"model": 1.1, "parts": 1.0}},
    })  # fmt: skip
    kept(tmp_path, "decoding", {
        "gla": {
            "seconds": {"1024": times},
            "bytes": {"1024": {"model": 2**19, "transformer": 2**21}},
        },
    })  # fmt: skip
    written = page.write(tmp_path, tmp_path / "beside.md")
    assert [path.exists() for path in written] == [True] * 4
    text = written[0].read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert "| gla | 10 | 2 | 2.100 ± 0.141 | 3.000 ± 0.000 | 8 |" in rows
    assert "| transformer | 10 | 1 | 3.000 | 3.000 | 4 |" in rows
    assert "| gla | 1,024 (2.00) | 4,096 (2.00) | 1.10 |" in rows
    assert "| gla | 2 (2.00) | 0.5 |" in rows
    assert "`mnemic bench training -o training.json`, 2026-01-02: torch 1; small." in text
    assert "gated-deltanet as fast" not in text
    assert "Not measured yet: gated-deltanet, mesa, ttt-linear," in text
    assert "mesa seed 0" in text
    assert "transformer seed 1" in text
    assert "gla seed 1" not in text
    late = {"512": {**times, "model": 2.0}, "2048": {**times, "model": 2.0}, "8192": times}
    told = {"seconds": late, "parts": {"model": 1.1, "parts": 1.0}}
    kept(tmp_path, "training", {"gated-deltanet": told})
    text = page.write(tmp_path, tmp_path / "beside.md")[0].read_text()
    assert (
        "Goal: gated-deltanet is as fast as the transformer from 2,048 tokens on; "
        "missed at 2,048." in text
    )
