"""Expressions that no spec uses go through the same path, to a model whose loss falls."""

from pathlib import Path
from typing import Any

import pytest

import mnemic
from mnemic.models.language_model import ModelOptions, build
from mnemic.models.train import train
from mnemic.models.train_options import TrainOptions
from mnemic.search.tasks import get

ROOT = Path(__file__).parents[2]
OWN: list[Any] = [
    *(pytest.param(str(p), id=p.stem) for p in sorted((ROOT / "examples").glob("*.yaml"))),
    pytest.param(
        {
            "name": "own-features",
            "bias": {"expr": "log(cosh(e))"},
            "features": {"expr": "x*sigmoid(x)"},
            "retention": {"decay": "channel"},
            "optimizer": {"rate": "token"},
        },
        id="own-features",
    ),
]


@pytest.mark.some(1)
@pytest.mark.parametrize("source", OWN)
def test_own_expression_trains(source: Any, tmp_path: Path) -> None:
    """Sixty steps on short recall take the loss down by a tenth at least."""
    compiled = mnemic.compile(source)
    task = get("mqar").configure({"pairs": 4, "length": 24, "vocabulary": 64})
    options = ModelOptions(task.vocabulary, dim=32, layers=1)
    model = build(options, lambda dim, index: compiled.layer(dim, heads=1), seed=0)
    losses: list[float] = []

    class Record:
        def start(self, *args: Any, **kwargs: Any) -> None: ...
        def step(self, step: int, loss: float) -> None:
            losses.append(loss)

        def evaluated(self, *args: Any, **kwargs: Any) -> None: ...
        def end(self, *args: Any, **kwargs: Any) -> None: ...

    train(model, task, TrainOptions(steps=60, batch=32, eval_every=60), tmp_path / "run", Record())
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
