"""Training with weights, gradients and the optimizer's state cut across processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from in_processes import in_processes
from small_models import tokens

from mnemic.errors import UsageError
from mnemic.hf import folder
from mnemic.hf.build import make_config, make_model
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
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


class Told(Silent):
    """A progress that keeps the losses."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def step(self, done: int, loss: float) -> None:
        self.losses.append(loss)


def fresh(tied: bool) -> MnemicForCausalLM:
    shape = Shape(2, 16, vocabulary=len(BYTES), tied=tied)
    return make_model(make_config(["gated-deltanet", "titans"], shape), 0)


def ran(run: Path, tied: bool, **options: int) -> tuple[list[float], float]:
    """The losses of every step, and the bits a byte at the end."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._shared_state.clear()
    progress = Told()
    outcome = train(fresh(tied), BYTES, TEXTS, TextOptions(**TOLD, **options), run, progress)
    return progress.losses, outcome.bits


@pytest.mark.parametrize("tied", [True, pytest.param(False, marks=pytest.mark.full)])
def test_two_processes_with_a_half_each_learn_what_one_does(tmp_path: Path, tied: bool) -> None:
    whole = ran(tmp_path / "whole", tied, batch=4)
    (tmp_path / "meet").mkdir()
    cut, _ = in_processes(
        2, tmp_path / "meet", lambda: ran(tmp_path / "cut", tied, batch=2, sharded=True)
    )
    assert cut[0] == pytest.approx(whole[0], rel=1e-6)
    assert cut[1] == pytest.approx(whole[1], rel=1e-6)
    models = [tmp_path / run / "model" for run in ("cut", "whole")]
    files = [{path.name: path.stat().st_size for path in model.iterdir()} for model in models]
    assert files[0] == files[1]
    found, expected = map(folder.load, models)
    rows = tokens()
    torch.testing.assert_close(found(rows).logits, expected(rows).logits)


def test_one_process_has_nothing_to_cut(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--shard: one process; start several: torchrun"):
        ran(tmp_path / "run", True, batch=2, sharded=True)
    assert not (tmp_path / "run").exists()


def test_muon_is_refused() -> None:
    with pytest.raises(UsageError, match="optimizer: turns whole matrices"):
        TextOptions(optimizer="muon", sharded=True)
