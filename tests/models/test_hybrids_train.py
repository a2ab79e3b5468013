"""Hybrids and feed-forwards of every kernel learn: short runs on recall and on bytes."""

from pathlib import Path
from typing import Any

import pytest
from tiers import first_only

import mnemic
from mnemic.models.feed_forward import KERNELS
from mnemic.models.language_model import ModelOptions, build
from mnemic.models.train import train
from mnemic.models.train_options import TrainOptions
from mnemic.search.tasks import get

BLOCKS: dict[str, dict[str, Any]] = {
    "context": {"hybrid": "context", "segment": 8, "persistent": 2},
    "gate": {"hybrid": "gate", "attention_window": 8, "persistent": 2},
    "layer": {"hybrid": "layer", "attention_window": 8, "persistent": 2},
}
RECALL = {"pairs": 4, "length": 24, "vocabulary": 64}


class Record:
    """Progress that only keeps the losses."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def start(self, *args: Any, **kwargs: Any) -> None: ...
    def step(self, step: int, loss: float) -> None:
        self.losses.append(loss)

    def evaluated(self, *args: Any, **kwargs: Any) -> None: ...
    def end(self, *args: Any, **kwargs: Any) -> None: ...


def fall(spec: dict[str, Any], folder: Path, task: Any, steps: int) -> float:
    """The last losses over the first."""
    compiled, record = mnemic.compile(spec), Record()
    kernel = compiled.spec.block.feed_forward
    options = ModelOptions(task.vocabulary, dim=32, layers=1, feed_forward=kernel)
    model = build(options, lambda dim, index: compiled.layer(dim, heads=2), seed=0)
    train(model, task, TrainOptions(steps, batch=32, eval_every=steps), folder / "run", record)
    return sum(record.losses[-5:]) / sum(record.losses[:5])


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "memory"),
    first_only(
        [("context", "gated-deltanet"), ("gate", "titans"), ("layer", "titans")],
        ("context", "gated-deltanet"),
    ),
)
def test_hybrids_learn_recall(kind: str, memory: str, tmp_path: Path) -> None:
    block = {**BLOCKS[kind], "rotary": "attention"}
    spec = {"name": "learner", "extends": memory, "block": block}
    assert fall(spec, tmp_path, get("mqar").configure(RECALL), 60) < 0.85


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", first_only(BLOCKS, "gate", "layer"))
def test_hybrids_learn_bytes(kind: str, tmp_path: Path) -> None:
    spec = {"name": "learner", "extends": "titans-linear", "block": BLOCKS[kind]}
    assert fall(spec, tmp_path, get("bytes").configure({"length": 32}), 60) < 0.8


@pytest.mark.some(1)
@pytest.mark.parametrize("kernel", first_only(KERNELS, "relu", "exp"))
def test_every_kernel_of_the_feed_forward_learns(kernel: str, tmp_path: Path) -> None:
    spec = {"name": "learner", "extends": "gla", "block": {"feed_forward": kernel}}
    assert fall(spec, tmp_path, get("mqar").configure(RECALL), 60) < 0.85
