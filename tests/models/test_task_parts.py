"""What a task may add to training: levels of a curriculum, and a decoder before the head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mnemic.errors import UsageError
from mnemic.models.checkpoint import Checkpoint
from mnemic.models.contract import MakeLayer
from mnemic.models.language_model import LanguageModel, ModelOptions, build
from mnemic.models.train import CHECKPOINT, load_weights, train
from mnemic.models.train_options import TrainOptions
from mnemic.search.tasks.base import Batch
from mnemic.search.tasks.compression import Compression, CompressionOptions, Decoder
from mnemic.search.tasks.mqar import Mqar, MqarOptions
from mnemic.search.tasks.swaps import Swaps, SwapsOptions

TRAIN = TrainOptions(steps=6, batch=4, lr=1e-2, warmup=2, eval_every=2, eval_size=8)
SHORT = CompressionOptions(vocabulary=5, length=6)


class Watched(Swaps):
    """Records the lengths that are trained on, and is mastered from a certain look on."""

    lengths: list[int]
    looks: int

    def __init__(self, options: SwapsOptions | None = None, patience: int = 1) -> None:
        super().__init__(options)
        self.lengths, self.looks, self.patience = [], 0, patience

    @property
    def levels(self) -> tuple[Any, ...]:
        return tuple(_Level(self, level) for level in super().levels)


class _Level:
    """One level, which tells the task what is drawn."""

    def __init__(self, task: Watched, level: Swaps) -> None:
        self.task, self.level = task, level

    def __getattr__(self, name: str) -> Any:
        return getattr(self.level, name)

    def batch(self, generator: torch.Generator, size: int, split: Any) -> Batch:
        if split == "train":
            self.task.lengths.append(self.level.options.length)
        return self.level.batch(generator, size, split)

    def mastered(self, score: float) -> bool:
        self.task.looks += 1
        return self.task.looks % self.task.patience == 0


def watched(patience: int) -> Watched:
    return Watched(SwapsOptions(elements=3, length=8, start=2), patience)


def model(make_layer: MakeLayer, vocabulary: int) -> LanguageModel:
    return build(ModelOptions(vocabulary, dim=8, layers=1), make_layer, seed=1)


def test_a_mastered_level_gives_way_to_the_next(causal_mean: MakeLayer, tmp_path: Path) -> None:
    task = watched(patience=2)
    result = train(model(causal_mean, task.vocabulary), task, TRAIN, tmp_path / "run")
    # looked at after steps 2 (no), 4 (yes: on to 4 swaps, which are looked at and not mastered)
    assert task.lengths == [2, 2, 2, 2, 4, 4]
    assert result.task["options"]["length"] == 8
    assert result.chance == task.chance


def test_all_levels_may_be_passed_at_once(causal_mean: MakeLayer, tmp_path: Path) -> None:
    task = watched(patience=1)
    train(model(causal_mean, task.vocabulary), task, TRAIN, tmp_path / "run")
    assert task.lengths == [2, 2, 8, 8, 8, 8]


def test_a_resumed_curriculum_goes_on_where_it_was(causal_mean: MakeLayer, tmp_path: Path) -> None:
    whole, first, rest = watched(2), watched(2), watched(2)
    one, two = (model(causal_mean, whole.vocabulary) for _ in range(2))
    train(one, whole, TRAIN, tmp_path / "whole")
    train(two, first, replace(TRAIN, steps=4), tmp_path / "run")
    assert Checkpoint.load(tmp_path / "run" / CHECKPOINT).level == 1
    train(two, rest, TRAIN, tmp_path / "run", existing="resume")
    assert (first.lengths, rest.lengths) == ([2, 2, 2, 2], [4, 4])
    assert first.lengths + rest.lengths == whole.lengths


def test_a_curriculum_is_learned(gated_delta: MakeLayer, tmp_path: Path) -> None:
    """Two elements, whose order alternates: mastered level by level."""
    task = Swaps(SwapsOptions(elements=2, length=8, start=2))
    options = TrainOptions(steps=80, batch=8, lr=2e-2, warmup=5, eval_every=10, eval_size=8)
    learner = build(ModelOptions(task.vocabulary, dim=16, layers=1), gated_delta)
    train(learner, task, options, tmp_path / "run")
    assert Checkpoint.load(tmp_path / "run" / CHECKPOINT).level == 2


def test_a_decoder_is_trained_saved_and_resumed(causal_mean: MakeLayer, tmp_path: Path) -> None:
    task = Compression(SHORT)
    one, two = (model(causal_mean, task.vocabulary) for _ in range(2))
    whole = train(one, task, TRAIN, tmp_path / "whole")
    assert isinstance(one.decoder, Decoder)
    assert whole.parameters == sum(p.numel() for p in one.parameters())
    train(two, task, replace(TRAIN, steps=1), tmp_path / "short")
    assert isinstance(two.decoder, Decoder)
    assert not two.decoder.inner.weight.equal(one.decoder.inner.weight)
    loaded = model(causal_mean, task.vocabulary)
    with pytest.raises(UsageError, match="the checkpoint of another model"):
        load_weights(loaded, tmp_path / "whole")
    loaded.decoder = task.decoder(8)
    load_weights(loaded, tmp_path / "whole")
    tokens = torch.randint(5, (2, 6))
    assert loaded(tokens).equal(one(tokens))


def test_a_run_with_a_decoder_resumes_bit_by_bit(causal_mean: MakeLayer, tmp_path: Path) -> None:
    task = Compression(SHORT)
    one, two = (model(causal_mean, task.vocabulary) for _ in range(2))
    train(one, task, TRAIN, tmp_path / "whole")

    class Cut:
        def start(self, *_: Any) -> None: ...
        def step(self, step: int, loss: float) -> None:
            if step == 3:
                raise KeyboardInterrupt

        def evaluated(self, *_: Any) -> None: ...
        def end(self, *_: Any) -> None: ...

    with pytest.raises(KeyboardInterrupt):
        train(two, task, TRAIN, tmp_path / "cut", Cut())
    again = model(causal_mean, task.vocabulary)
    train(again, task, TRAIN, tmp_path / "cut", existing="resume")
    for a, b in zip(one.parameters(), again.parameters(), strict=True):
        assert a.equal(b)


def test_a_models_decoder_is_kept_or_taken_off(causal_mean: MakeLayer, tmp_path: Path) -> None:
    task = Compression(SHORT)
    one = model(causal_mean, task.vocabulary)
    train(one, task, TRAIN, tmp_path / "a")
    decoder = one.decoder
    train(one, task, TRAIN, tmp_path / "b")
    assert one.decoder is decoder
    plain = Mqar(MqarOptions(vocabulary=8, pairs=1, length=4))
    other = model(causal_mean, plain.vocabulary)
    other.decoder = task.decoder(8)
    train(other, plain, TRAIN, tmp_path / "c")
    assert other.decoder is None
