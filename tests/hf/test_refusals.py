"""Folders of models and runs in which files are cut, or hold code: one line, and nothing runs."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from planted import plant
from small_models import small

from mnemic.errors import UsageError
from mnemic.hf import folder
from mnemic.hf.build import make_config, make_model
from mnemic.hf.shape import Shape
from mnemic.hf.text_options import TextOptions
from mnemic.hf.texts import Texts
from mnemic.hf.tokenizer import get_tokenizer
from mnemic.hf.train import last_checkpoint, train
from mnemic.models.progress import Silent

BYTES = get_tokenizer("bytes", ())
TEXTS = Texts(tuple(f"line {i} of a text, {i} times" for i in range(20)), ("a line held out",))


class Killed(BaseException):
    """What no handler sees coming."""


class KilledAt(Silent):
    """A progress that ends the run after a step."""

    def __init__(self, last: int) -> None:
        self.last = last

    def step(self, done: int, loss: float) -> None:
        if done == self.last:
            raise Killed


def ran(run: Path, progress: Silent, existing: Any = "refuse") -> None:
    """Train a small model, with a checkpoint after two steps of four."""
    config = make_config(["deltanet"], Shape(1, 16, vocabulary=len(BYTES)))
    options = TextOptions(steps=4, batch=2, length=16, eval_every=2, warmup=1)
    train(make_model(config, 0), BYTES, TEXTS, options, run, progress, existing)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after its checkpoint, which tests copy."""
    run = tmp_path_factory.mktemp("begun") / "run"
    with pytest.raises(Killed):
        ran(run, KilledAt(3))
    return run


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "run"))


@pytest.mark.some(2)
@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_code_in_a_runs_checkpoint_is_not_run(run: Path, tmp_path: Path, name: str, archive: bool):
    last = last_checkpoint(run)
    assert last is not None
    assert (last / name).is_file()
    plant(last / name, tmp_path / "sign", archive=archive)
    with pytest.raises(UsageError) as caught:
        ran(run, Silent(), "resume")
    assert str(caught.value).startswith(f"{run}: a file there is not a checkpoint of tensors and")
    assert not (tmp_path / "sign").exists()


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["optimizer.pt", "model.safetensors"])
def test_a_cut_file_of_a_runs_checkpoint_is_told(run: Path, name: str):
    last = last_checkpoint(run)
    assert last is not None
    whole = (last / name).read_bytes()
    (last / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError) as caught:
        ran(run, Silent(), "resume")
    assert str(caught.value).startswith(f"{run}: ")
    assert "cannot be read" in str(caught.value)
    (last / name).write_bytes(whole)
    ran(run, Silent(), "resume")


def test_a_model_whose_weights_are_cut_is_told(tmp_path: Path):
    place = folder.save(small("deltanet"), tmp_path / "m", [])
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UsageError, match="m: weights that cannot be read: "):
        folder.load(place)
