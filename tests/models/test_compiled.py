"""Training under torch.compile takes the same steps, and says where it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._inductor.config as inductor

from mnemic import pipeline
from mnemic.errors import EnvironmentFailed
from mnemic.models.checkpoint import Checkpoint
from mnemic.models.compiled import SHORT, compiled, compiled_hidden, told_where_it_fails
from mnemic.models.language_model import LanguageModel, ModelOptions, build
from mnemic.models.train import CHECKPOINT, train
from mnemic.models.train_options import TrainOptions
from mnemic.search.tasks.mqar import Mqar, MqarOptions

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, of its own code

TASK = Mqar(MqarOptions(vocabulary=16, pairs=2, length=8))
OPTIONS = TrainOptions(steps=4, batch=8, lr=1e-2, warmup=2, eval_every=2, eval_size=16)
TRACED = partial(torch.compile, backend="aot_eager")
"""Graphs of forward and backward passes, run as they are: without a minute of a C++ compiler."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No graph of another test."""
    torch._dynamo.reset()
    with inductor.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()


def model(spec: str = "linear-attention") -> LanguageModel:
    rule = pipeline.compile(spec)
    shape = ModelOptions(16, dim=16, layers=1)
    return build(shape, lambda dim, _: rule.layer(dim, heads=2), 3)


@pytest.mark.parametrize(
    ("spec", "traced"),
    [
        ("linear-attention", True),
        pytest.param("linear-attention", False, marks=pytest.mark.full),
        pytest.param("lion", False, marks=pytest.mark.full),
    ],
)  # a whole graph, and parts alone
def test_compiled_steps_are_those_of_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, traced: bool
) -> None:
    """The first tier runs the graphs as they are traced; inductor's code is compared in full."""
    if traced:
        monkeypatch.setattr(torch, "compile", TRACED)
    frames = torch._dynamo.utils.counters["frames"]
    ends, before = [], frames["ok"]
    for fast in (False, True):
        trained = model(spec)
        options = replace(OPTIONS, compiled=fast)
        train(trained, TASK, options, tmp_path / str(fast))
        ends.append(dict(trained.named_parameters()))
        assert (frames["ok"] > before) is fast  # it was compiled indeed
    plain, fast_ones = ends
    assert plain.keys() == fast_ones.keys()
    for name, at_the_end in plain.items():
        torch.testing.assert_close(fast_ones[name], at_the_end, rtol=1e-3, atol=1e-4)
    losses = [Checkpoint.load(tmp_path / f / CHECKPOINT).points[-1].loss for f in ("False", "True")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_run_goes_on_with_or_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the number of threads, only rounding depends on it."""
    monkeypatch.setattr(torch, "compile", TRACED)
    assert OPTIONS.identity() == replace(OPTIONS, compiled=True).identity()
    plain, fast = replace(OPTIONS, steps=2), replace(OPTIONS, steps=3, compiled=True)
    for options in (plain, fast, replace(OPTIONS, steps=4)):
        done = train(model(), TASK, options, tmp_path, existing="resume")
        assert (done.steps, done.stopped) == (options.steps, "steps")


def graphs_of(trained: LanguageModel, options: TrainOptions, lengths: tuple[int, ...]) -> int:
    """Count the graphs that batches of these lengths make."""
    seen = []
    made = torch._dynamo.utils.counters["stats"]
    hidden = compiled_hidden(trained, options)
    for length in lengths:
        before = made["unique_graphs"]
        hidden(torch.zeros(2, length, dtype=torch.long))[0].sum().backward()
        seen.append(made["unique_graphs"] - before)
    return sum(seen)


def test_parts_are_compiled_once_for_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where whole graphs are compiled, each length has its own."""
    monkeypatch.setattr(torch, "compile", TRACED)
    short, long = replace(OPTIONS, compiled=True), replace(OPTIONS, steps=SHORT, compiled=True)
    lengths, memory = (32, 48), model("lion")
    rule: Any = memory.blocks[0].memory.rule
    clear = rule.parts[0].__globals__["ops"].by_memory.__globals__["_graph"].cache_clear
    clear()
    assert graphs_of(memory, short, lengths[:1]) > 0
    assert graphs_of(memory, short, lengths[1:]) == 0
    clear()
    torch._dynamo.reset()
    assert graphs_of(memory, long, lengths) >= len(lengths)
    torch._dynamo.reset()
    assert graphs_of(model(), short, lengths) == len(lengths)  # without parts


NONE: dict[str, Any] = {"cpp.cxx": (None, "no-such-compiler"), "compile_threads": 1}
SAID = r"no-such-compiler.*\(train without --compile, or without 'compile: true' in the space\)"


def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    with inductor.patch(NONE), pytest.raises(EnvironmentFailed, match=SAID):
        train(model(), TASK, replace(OPTIONS, compiled=True), tmp_path)
    assert not (tmp_path / CHECKPOINT).exists()


def test_a_failure_of_the_backward_pass_is_told_alike() -> None:
    x = torch.ones(7, requires_grad=True)
    y = compiled(lambda x: (2 * x).sin())(x)
    with inductor.patch(NONE), pytest.raises(EnvironmentFailed, match=SAID), told_where_it_fails():
        y.sum().backward()
