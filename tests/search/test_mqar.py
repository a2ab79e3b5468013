"""The task is the published one, is seeded, and says what is wrong with its options."""

from __future__ import annotations

import pytest
import torch

from mnemic.errors import UsageError
from mnemic.search import tasks
from mnemic.search.tasks.base import IGNORED
from mnemic.search.tasks.mqar import PUBLISHED_VOCABULARY, Mqar, MqarOptions

SMALL = MqarOptions(vocabulary=40, pairs=4, length=32)


def batch(options: MqarOptions, size: int = 50, seed: int = 3) -> tasks.Batch:
    task = Mqar(options)
    return task.batch(task.generator(seed, "train"), size, "train")


@pytest.mark.parametrize("fill", ["zeros", "random"])
@pytest.mark.parametrize("vocabulary", [40, 41, PUBLISHED_VOCABULARY])
def test_each_query_is_answered_by_its_pair(fill: str, vocabulary: int) -> None:
    drawn = batch(MqarOptions(vocabulary=vocabulary, pairs=4, length=32, fill=fill))
    for inputs, targets in zip(drawn.inputs.tolist(), drawn.targets.tolist(), strict=True):
        keys, values = inputs[0:8:2], inputs[1:8:2]
        scored = [t for t, target in enumerate(targets) if target != IGNORED]
        assert len(set(keys)) == len(set(values)) == 4
        assert all(1 <= k < vocabulary // 2 for k in keys)
        assert all(vocabulary // 2 <= v < vocabulary for v in values)
        assert all(t >= 8 and t % 2 == 0 for t in scored)
        pairs = dict(zip(keys, values, strict=True))
        assert {inputs[t]: targets[t] for t in scored} == pairs


def test_other_positions_are_blank_or_noise() -> None:
    blank = batch(SMALL).inputs[:, 8:]
    assert ((blank != 0).sum(1) == 4).all()
    noise = batch(MqarOptions(vocabulary=40, pairs=4, length=32, fill="random")).inputs[:, 8:]
    assert set(noise.flatten().tolist()) == set(range(40))


def test_the_published_example_has_its_defaults() -> None:
    options = MqarOptions()
    assert (options.vocabulary, options.pairs, options.length) == (PUBLISHED_VOCABULARY, 8, 64)
    assert (options.power, options.fill) == (0.01, "zeros")


def test_distances_follow_the_power_law() -> None:
    drawn = batch(MqarOptions(vocabulary=40, pairs=1, length=10), size=20_000)
    slots = ((drawn.targets != IGNORED).int().argmax(1) - 2) // 2
    shares = torch.bincount(slots, minlength=4).double() / len(slots)
    weights = torch.arange(1, 5, dtype=torch.double) ** (0.01 - 1)
    torch.testing.assert_close(shares, weights / weights.sum(), atol=0.015, rtol=0)


def test_streams_are_seeded_and_test_is_apart_from_train() -> None:
    task = Mqar(SMALL)

    def first(seed: int, split: str) -> torch.Tensor:
        return task.batch(task.generator(seed, split), 4, split).inputs  # type: ignore[arg-type]

    assert first(5, "train").equal(first(5, "train"))
    seeds = [
        task.generator(s, split).initial_seed() for s in range(9) for split in ("train", "test")
    ]
    assert len(set(seeds)) == len(seeds)
    assert not first(5, "train").equal(first(5, "test"))


def test_score_is_accuracy_of_scored_positions() -> None:
    task, drawn = Mqar(SMALL), batch(SMALL)
    right = torch.nn.functional.one_hot(drawn.targets.clamp(min=0), 40).float()
    assert task.score(right, drawn.targets) == 1.0 == task.ceiling
    half = right.clone()
    half[:25] = 0.0
    half[:25, :, 0] = 1.0
    assert task.score(half, drawn.targets) == 0.5
    assert task.chance == 0.25


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"pairs": 0},
            "pairs: an integer in [1, 4096]: key-value pairs in a sequence: read '0'",
        ),
        (
            {"pairs": 2.0, "fill": "zeroes"},
            "pairs: an integer in [1, 4096]: key-value pairs in a sequence: read '2.0'\n"
            "fill: read 'zeroes', allowed: zeros, random; did you mean 'zeros'?",
        ),
        ({"length": 33}, "length: the length must be even: read '33'"),
        (
            {"pairs": 17},
            "length: 17 pairs and their queries need a length of at least 68: read '64'",
        ),
        (
            {"vocabulary": 16},
            "vocabulary: 8 different keys need a vocabulary of at least 18: read '16'",
        ),
        (
            {"pair": 3},
            "no option of mqar: read 'pair', allowed: vocabulary, pairs, length, power, fill;"
            " did you mean 'pairs'?",
        ),
    ],
)
def test_wrong_options_are_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Mqar.configure(values)
    assert str(caught.value) == message


def test_least_vocabulary_and_length_work() -> None:
    drawn = batch(MqarOptions(vocabulary=18, pairs=8, length=32))
    assert (drawn.targets != IGNORED).sum(1).eq(8).all()


def test_unknown_task_names_the_nearest() -> None:
    assert tasks.get("mqar") is Mqar
    with pytest.raises(UsageError) as caught:
        tasks.get("mqra")
    expected = f"no such task: read 'mqra', allowed: {', '.join(tasks.names())}"
    assert str(caught.value) == f"{expected}; did you mean 'mqar'?"


def test_a_users_task_is_one_small_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_TASKS", dict(tasks._TASKS))

    @tasks.register
    class Echo(tasks.Task[tasks.Options]):
        name, title, source = "echo", "repeat each token", "none"
        options_type = tasks.Options
        vocabulary, chance = 4, 0.25

        def batch(self, generator: torch.Generator, size: int, split: str) -> tasks.Batch:
            tokens = torch.randint(4, (size, 8), generator=generator)
            return tasks.Batch(tokens, tokens)

    task = tasks.get("echo").configure({})
    assert task.batch(task.generator(0, "test"), 2, "test").inputs.shape == (2, 8)
    assert "echo" in tasks.names()
    with pytest.raises(UsageError, match="a task named 'mqar' exists already"):
        tasks.register(type("Other", (Mqar,), {}))
