"""Training learns, resumes bit by bit, stops when told to, and spoils nothing."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import plant

from mnemic.errors import CheckFailed, EnvironmentFailed, UsageError
from mnemic.models.checkpoint import Checkpoint
from mnemic.models.contract import MakeLayer
from mnemic.models.curve import Point
from mnemic.models.language_model import LanguageModel, ModelOptions, build
from mnemic.models.progress import Silent
from mnemic.models.train import CHECKPOINT, load_weights, train
from mnemic.models.train_options import TrainOptions
from mnemic.search.tasks.mqar import Mqar, MqarOptions

TASK = Mqar(MqarOptions(vocabulary=16, pairs=2, length=8))
OPTIONS = TrainOptions(steps=20, batch=8, lr=1e-2, warmup=4, eval_every=6, eval_size=20)


@dataclass
class StopAt(Silent):
    """Presses Ctrl-C after a step: really, or by raising what it raises."""

    at: int
    really: bool = False
    sends: signal.Signals = signal.SIGINT

    def step(self, done: int, loss: float) -> None:
        if done != self.at:
            return
        if not self.really and self.sends == signal.SIGINT:
            raise KeyboardInterrupt
        os.kill(os.getpid(), self.sends)


class Poisoned(Mqar):
    """Batches that make the loss NaN from the 14th on."""

    drawn = 0

    def batch(self, generator: torch.Generator, size: int, split: Any) -> Any:
        self.drawn += split == "train"
        if self.drawn == 14:
            self.model.embedding.weight.data[0] = float("nan")
        return super().batch(generator, size, split)

    model: LanguageModel


@pytest.fixture
def model(gated_delta: MakeLayer) -> LanguageModel:
    return build(ModelOptions(16, dim=16), gated_delta, seed=3)


@pytest.fixture
def twin(gated_delta: MakeLayer) -> LanguageModel:
    """Another model of that shape, with other values."""
    return build(ModelOptions(16, dim=16), gated_delta, seed=4)


def parameters(model: LanguageModel) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(x.equal(y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("cut", "really"), [(10, False), (12, True)])
def test_resumed_equals_uninterrupted(
    model: LanguageModel, twin: LanguageModel, tmp_path: Path, cut: int, really: bool
) -> None:
    start = {k: v.clone() for k, v in model.state_dict().items()}
    whole = train(model, TASK, OPTIONS, tmp_path / "whole")
    trained = parameters(model)
    model.load_state_dict(start)
    with pytest.raises(KeyboardInterrupt):
        train(model, TASK, OPTIONS, tmp_path / "parts", StopAt(cut, really))
    told = json.loads((tmp_path / "parts/result.json").read_text())
    assert (told["stopped"], told["steps"]) == ("interrupted", cut)
    resumed = train(twin, TASK, OPTIONS, tmp_path / "parts", existing="resume")
    assert equal(parameters(twin), trained)
    assert (resumed.score, resumed.loss) == (whole.score, whole.loss)
    assert (resumed.steps, resumed.stopped) == (20, "steps")
    ends = [Checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("whole", "parts")]
    torch.testing.assert_close(ends[0].optimizer, ends[1].optimizer, rtol=0, atol=0)
    assert ends[0].batches.equal(ends[1].batches)
    curves = [[(p.step, p.score, p.loss) for p in end.points] for end in ends]
    assert curves[0] == curves[1]


def test_sigterm_saves_as_ctrl_c_does(model: LanguageModel, tmp_path: Path) -> None:
    """Where the process has a handler of it, as the command has: the step is finished and saved."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit):
            train(model, TASK, OPTIONS, tmp_path, StopAt(10, sends=signal.SIGTERM))
        assert signal.getsignal(signal.SIGTERM) is leave
    finally:
        signal.signal(signal.SIGTERM, before)
    told = json.loads((tmp_path / "result.json").read_text())
    assert (told["stopped"], told["steps"]) == ("interrupted", 10)
    assert Checkpoint.load(tmp_path / CHECKPOINT).step == 10


def test_the_folder_tells_the_run(model: LanguageModel, tmp_path: Path) -> None:
    outcome = train(model, TASK, OPTIONS, tmp_path / "run", metadata={"spec": "abc"})
    told = json.loads((tmp_path / "run/result.json").read_text())
    assert told["metadata"] == {"spec": "abc"}
    assert told["task"]["options"]["vocabulary"] == 16
    assert (told["metric"], told["score"], told["chance"]) == ("accuracy", outcome.score, 0.5)
    assert (told["seed"], told["steps"], told["stopped"]) == (0, 20, "steps")
    assert told["versions"]["torch"] == torch.__version__
    rows = list(csv.DictReader((tmp_path / "run/curve.csv").read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == [6, 12, 18, 20]
    assert (tmp_path / "run/curve.png").read_bytes().startswith(b"\x89PNG")
    assert not list((tmp_path / "run").glob("*.part"))
    assert str(tmp_path) not in (tmp_path / "run/result.json").read_text()


def test_it_learns_and_stops_at_the_target(
    model: LanguageModel, twin: LanguageModel, tmp_path: Path
) -> None:
    options = TrainOptions(steps=500, batch=32, lr=1e-2, warmup=10, eval_every=20, stop_at=0.9)
    outcome = train(model, TASK, options, tmp_path)
    assert outcome.stopped == "target"
    assert outcome.score is not None
    assert outcome.score >= 0.9
    assert outcome.steps < 500
    load_weights(twin, tmp_path)
    assert equal(parameters(twin), parameters(model))
    again = train(twin, TASK, options, tmp_path, existing="resume")
    assert (again.stopped, again.steps) == ("target", outcome.steps)


def test_the_time_limit_ends_with_an_evaluation(model: LanguageModel, tmp_path: Path) -> None:
    options = replace(OPTIONS, steps=10**6, eval_every=10**6, time_limit=0.05)
    outcome = train(model, TASK, options, tmp_path)
    assert outcome.stopped == "time"
    assert outcome.score is not None


def test_a_loss_that_is_not_a_number_keeps_the_last_good_checkpoint(
    model: LanguageModel, tmp_path: Path
) -> None:
    task = Poisoned(TASK.options)
    task.model = model
    with pytest.raises(CheckFailed) as caught:
        train(model, task, OPTIONS, tmp_path)
    assert str(caught.value) == (
        "training on 'mqar': at step 14 the loss is nan and the gradient is nan (the last good"
        f" checkpoint is {tmp_path / CHECKPOINT}; a smaller lr may help)"
    )
    assert caught.value.exit_code == 4
    saved = Checkpoint.load(tmp_path / CHECKPOINT)
    assert saved.step == 12
    assert all(value.isfinite().all() for value in saved.model.values())


def test_a_foreign_folder_is_left_alone(model: LanguageModel, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="holds files that mnemic did not write"):
        train(model, TASK, OPTIONS, tmp_path, existing="replace")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_earlier_run_is_refused_or_replaced(model: LanguageModel, tmp_path: Path) -> None:
    options = replace(OPTIONS, steps=1)
    train(model, TASK, options, tmp_path)
    with pytest.raises(UsageError, match="holds an earlier run: --resume goes on"):
        train(model, TASK, options, tmp_path)
    assert train(model, TASK, options, tmp_path, existing="replace").steps == 1


@pytest.mark.parametrize(
    ("options", "metadata", "differing"),
    [
        (
            replace(OPTIONS, lr=1e-3, seed=2),
            {"spec": "a"},
            "lr (0.01 there, 0.001 here), seed (0 there, 2 here)",
        ),
        (OPTIONS, {"spec": "b"}, "metadata.spec (a there, b here)"),
    ],
)
def test_another_run_is_not_resumed(
    model: LanguageModel,
    tmp_path: Path,
    options: TrainOptions,
    metadata: dict[str, str],
    differing: str,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(model, TASK, OPTIONS, tmp_path, StopAt(2), metadata={"spec": "a"})
    with pytest.raises(UsageError) as caught:
        train(model, TASK, options, tmp_path, metadata=metadata, existing="resume")
    assert str(caught.value).endswith(f"cannot resume, the run there differs in {differing}")


def test_a_run_goes_on_on_another_device(
    model: LanguageModel, twin: LanguageModel, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(model, TASK, OPTIONS, tmp_path, StopAt(2))
    kept = Checkpoint.load(tmp_path / CHECKPOINT)
    assert kept.identity["device"] == "cpu"
    replace(kept, identity={**kept.identity, "device": "cuda"}).save(tmp_path / CHECKPOINT)
    assert train(twin, TASK, OPTIONS, tmp_path, existing="resume").steps == OPTIONS.steps


def test_another_model_is_not_resumed(
    model: LanguageModel, gated_delta: MakeLayer, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(model, TASK, OPTIONS, tmp_path, StopAt(2))
    wider = build(ModelOptions(16, dim=24), gated_delta)
    told = r"differs in model\.embedding\.weight \(\[16, 16\] there, \[16, 24\] here\)"
    with pytest.raises(UsageError, match=told):
        train(wider, TASK, OPTIONS, tmp_path, existing="resume")


def test_a_checkpoint_is_only_data(tmp_path: Path) -> None:
    path = tmp_path / CHECKPOINT
    torch.save({"format": 1, "step": Point}, path)
    with pytest.raises(UsageError, match="not a checkpoint of mnemic"):
        Checkpoint.load(path)
    path.write_bytes(b"")
    with pytest.raises(UsageError, match="not a checkpoint of mnemic"):
        Checkpoint.load(path)


@pytest.mark.parametrize("archive", [True, False])
def test_a_checkpoint_with_code_is_refused_and_nothing_runs(
    model: LanguageModel, tmp_path: Path, archive: bool
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(model, TASK, OPTIONS, tmp_path, StopAt(2))
    plant(tmp_path / CHECKPOINT, tmp_path / "sign", archive=archive)
    with pytest.raises(UsageError) as caught:
        train(model, TASK, OPTIONS, tmp_path, existing="resume")
    assert str(caught.value) == f"{tmp_path / CHECKPOINT}: not a checkpoint of mnemic"
    assert not (tmp_path / "sign").exists()


def test_a_checkpoint_that_is_cut_or_changed_is_refused_in_one_line(
    model: LanguageModel, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(model, TASK, OPTIONS, tmp_path, StopAt(2))
    path = tmp_path / CHECKPOINT
    whole = path.read_bytes()
    chance = random.Random(0)
    for trial in range(60):
        told = bytearray(whole[: chance.randrange(len(whole))] if trial % 2 else whole)
        for _ in range(trial % 3 * 20):
            told[chance.randrange(len(told))] = chance.randrange(256)
        path.write_bytes(told)
        try:
            Checkpoint.load(path)
        except UsageError as error:
            assert str(error).startswith(f"{path}: not a checkpoint of mnemic")
    torch.save({"format": 1, "points": []}, path)
    with pytest.raises(UsageError, match="not a checkpoint of mnemic"):
        Checkpoint.load(path)


def test_the_rate_rises_and_falls_to_a_tenth() -> None:
    options = TrainOptions(steps=100, warmup=10, lr=1.0)
    assert [options.rate(step) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert options.rate(100) == pytest.approx(0.1)


def test_no_clipping(model: LanguageModel, tmp_path: Path) -> None:
    train(model, TASK, replace(OPTIONS, steps=1, clip=None), tmp_path)
    assert json.loads((tmp_path / "result.json").read_text())["options"]["clip"] is None


def test_a_device_that_is_not_here_is_told_before_anything_is_written(
    model: LanguageModel, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentFailed, match="--device: read 'meta'"):
        train(model, TASK, replace(OPTIONS, device="meta"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_wrong_options_are_named() -> None:
    with pytest.raises(UsageError) as caught:
        TrainOptions(steps=0, lr=-1.0, clip=float("inf"))
    assert str(caught.value) == (
        "steps: must be finite and at least 1: read '0'\n"
        "lr: must be finite and above 0: read '-1.0'\n"
        "clip: must be finite and above 0: read 'inf'"
    )


def test_another_vocabulary_is_refused(model: LanguageModel, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="the model has a vocabulary of 16, task 'mqar' one of 8192"
    ):
        train(model, Mqar(), OPTIONS, tmp_path)
    assert not list(tmp_path.iterdir())
