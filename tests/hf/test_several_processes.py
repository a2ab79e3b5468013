"""Training in several processes: weights cut across them (FSDP2), rows cut across them, both."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from in_processes import in_processes
from small_models import tokens
from torch import distributed

from mnemic.errors import UsageError
from mnemic.hf import folder
from mnemic.hf.build import make_config, make_model
from mnemic.hf.follow import Follow
from mnemic.hf.shape import Shape
from mnemic.hf.text_options import TextOptions
from mnemic.hf.texts import Texts
from mnemic.hf.tokenizer import get_tokenizer
from mnemic.hf.train import train
from mnemic.models.progress import Silent

LINES = tuple(f"line {i} of a text that repeats itself, {i} times" for i in range(30))
TEXTS = Texts(LINES, ("a line of a text, held out", "another one"))  # three rows, for two processes
BYTES = get_tokenizer("bytes", ())
TOLD = {"steps": 4, "length": 16, "eval_every": 2, "warmup": 1}
WHOLE = 4
"""Rows of a step, in all processes together."""


class Told(Silent):
    """A progress that keeps the losses."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def step(self, done: int, loss: float) -> None:
        self.losses.append(loss)


def ran(run: Path, specs: str, tied: bool, **options: Any) -> tuple[list[float], float]:
    """The losses of every step, and the bits a byte at the end."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._shared_state.clear()
    shape = Shape(2, 16, vocabulary=len(BYTES), tied=tied)
    model = make_model(make_config(specs.split(), shape), 0)
    progress = Told()
    outcome = train(model, BYTES, TEXTS, TextOptions(**{**TOLD, **options}), run, progress)
    return progress.losses, outcome.bits


Alone = Callable[..., tuple[tuple[list[float], float], Path]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """Gives what one process learns and leaves, in a run that all tests of the same share."""

    @cache
    def run(specs: str, tied: bool, **options: Any) -> tuple[tuple[list[float], float], Path]:
        place = tmp_path_factory.mktemp("whole") / "run"
        return ran(place, specs, tied, batch=WHOLE, **options), place

    return run


def check(
    place: Path, alone: Alone, specs: str, count: int, *, tied: bool = True, **options: Any
) -> None:
    """What several processes learn and leave is what one does."""
    same = {name: x for name, x in options.items() if name not in ("sharded", "sequence_parallel")}
    whole, left = alone(specs, tied, **same)
    readers = count // options.get("sequence_parallel", 1)
    told = {"batch": WHOLE // readers, **options}
    (place / "meet").mkdir()
    first, *_ = in_processes(count, place / "meet", lambda: ran(place / "cut", specs, tied, **told))
    near = 1e-4 if options.get("optimizer") == "muon" else 1e-6  # which turns matrices in bfloat16
    assert first[0] == pytest.approx(whole[0], rel=near)
    assert first[1] == pytest.approx(whole[1], rel=near)
    models = [run / "model" for run in (place / "cut", left)]
    files = [{path.name: path.stat().st_size for path in model.iterdir()} for model in models]
    assert files[0] == files[1]
    found, expected = map(folder.load, models)
    rows = tokens()
    logits, wanted = found(rows).logits, expected(rows).logits
    torch.testing.assert_close(logits, wanted, rtol=1e-3, atol=100 * near)


@pytest.mark.parametrize(
    "how", [{"sharded": True}, {"sequence_parallel": 2}], ids=["weights", "rows"]
)
def test_two_processes_learn_what_one_does(
    tmp_path: Path, alone: Alone, how: dict[str, int]
) -> None:
    check(tmp_path, alone, "gated-deltanet titans", 2, **how)


@pytest.mark.full
@pytest.mark.parametrize("how", [{}, {"sharded": True}, {"sequence_parallel": 2}], ids=str)
def test_two_processes_learn_what_one_does_with_each(
    tmp_path: Path, alone: Alone, each: str, how: dict[str, int]
) -> None:
    check(tmp_path, alone, each, 2, **how)


@pytest.mark.full
@pytest.mark.parametrize(
    "how",
    [
        {"sharded": True, "accumulate": 2},
        {"sharded": True, "checkpointing": True},
        {"sequence_parallel": 2, "accumulate": 2},
        {"sequence_parallel": 2, "optimizer": "muon"},
    ],
    ids=str,
)
def test_two_processes_learn_what_one_does_by_the_same_options(
    tmp_path: Path, alone: Alone, how: dict[str, Any]
) -> None:
    check(tmp_path, alone, "gated-deltanet", 2, **how)


@pytest.mark.full
@pytest.mark.parametrize("specs", ["gated-deltanet softmax-attention", "titans-mag omega-linear"])
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_two_lines_of_two_processes_learn_what_one_does(
    tmp_path: Path, alone: Alone, specs: str, sharded: bool, tied: bool
) -> None:
    check(tmp_path, alone, specs, 4, tied=tied, sharded=sharded, sequence_parallel=2)


def over_in_the_first() -> list[float]:
    """The steps of a run whose time is over by the clock of one process alone."""
    if distributed.get_rank():
        Follow.seconds = property(lambda self: 0.0)  # type: ignore[assignment, method-assign]
    return ran(Path("run"), "deltanet", True, batch=2, time_limit=1e-6)[0]


def test_processes_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meet").mkdir()
    first, second = in_processes(2, tmp_path / "meet", over_in_the_first)
    assert len(first) == len(second) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sharded": True}, "--shard: one process; start several: torchrun"),
        (
            {"sequence_parallel": 3},
            "torchrun's processes: needs a multiple of --sequence-parallel 3: read '1'\n"
            "--length: needs a multiple of --sequence-parallel 3: read '16'",
        ),
    ],
)
def test_one_process_is_refused(tmp_path: Path, options: dict[str, int], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        ran(tmp_path / "run", "gated-deltanet", True, batch=2, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"optimizer": "muon", "sharded": True}, "optimizer: turns whole matrices"),
        (
            {"checkpointing": True, "compiled": True, "sequence_parallel": 2},
            "--checkpointing: not with --sequence-parallel\n--compile: not with",
        ),
        ({"sequence_parallel": 0}, "sequence_parallel: must be finite and at least 1: read '0'"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, int], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        TextOptions(**options)
