"""Every task: seeded, of the shape it says, with the chance and the ceiling that it says."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from solvers import GUESSES, PLAYERS
from torch.nn.functional import one_hot

from mnemic.errors import UsageError
from mnemic.search import tasks
from mnemic.search.tasks.base import IGNORED

SOLVED = [name for name in tasks.names() if name != "bytes"]
RUNGS = [(name, rung) for name in tasks.names() for rung in tasks.get(name).ladder]
QUICK = [(name, rung) for name, rung in RUNGS if name != "bytes"]


def at(name: str, rung: str | None = None, **values: object) -> tasks.Task[Any]:
    return tasks.get(name).configure(values, rung)


def drawn(task: tasks.Task[Any], size: int, seed: int = 1, split: Any = "test") -> tasks.Batch:
    return task.batch(task.generator(seed, split), size, split)


def scored(task: tasks.Task[Any], batch: tasks.Batch, answers: list[list[int]]) -> float:
    """The task's own score of certain answers."""
    logits = one_hot(torch.tensor(answers), task.vocabulary).float()
    return task.score(logits, batch.targets)


def played(task: tasks.Task[Any], batch: tasks.Batch) -> list[list[int]]:
    """What the perfect player answers; token 0 where it says nothing."""
    player = PLAYERS[task.name]
    rows = [list(player(task, row)) for row in batch.inputs.tolist()]
    return [[0 if answer is None else answer for answer in row] for row in rows]


@pytest.mark.parametrize(("name", "rung"), RUNGS)
def test_every_rung_gives_tokens_of_its_vocabulary(name: str, rung: str) -> None:
    task = at(name, rung)
    for split in ("train", "test"):
        batch = drawn(task, 2, split=split)
        assert batch.inputs.dtype == batch.targets.dtype == torch.long
        assert batch.inputs.shape == batch.targets.shape
        assert 0 <= batch.inputs.min() <= batch.inputs.max() < task.vocabulary
        answers = batch.targets[batch.targets != IGNORED]
        assert 0 <= answers.min() <= answers.max() < task.vocabulary
        assert (batch.targets != IGNORED).any(1).all()


@pytest.mark.parametrize("name", tasks.names())
def test_streams_follow_from_seed_and_split(name: str) -> None:
    task = at(name, next(iter(tasks.get(name).ladder)))

    def inputs(seed: int, split: Any, skip: int = 0) -> torch.Tensor:
        generator = task.generator(seed, split)
        for _ in range(skip):
            task.batch(generator, 4, split)
        return task.batch(generator, 4, split).inputs

    assert inputs(3, "train").equal(inputs(3, "train"))
    others = [inputs(3, "train", 1), inputs(4, "train"), inputs(3, "test")]
    assert not any(inputs(3, "train").equal(other) for other in others)


@pytest.mark.parametrize("name", tasks.names())
def test_a_batch_does_not_touch_torchs_own_stream(name: str) -> None:
    before = torch.get_rng_state()
    drawn(at(name, next(iter(tasks.get(name).ladder))), 2)
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize(("name", "rung"), QUICK)
def test_a_player_who_sees_the_inputs_alone_reaches_the_ceiling(name: str, rung: str) -> None:
    task = at(name, rung)
    batch = drawn(task, 3 if getattr(task.options, "length", 0) > 500 else 12)
    answers, due = torch.tensor(played(task, batch)), batch.targets
    assert answers[due != IGNORED].equal(due[due != IGNORED])
    if rung == "tiny":
        assert scored(task, batch, answers.tolist()) == task.ceiling == 1.0


@pytest.mark.parametrize("name", SOLVED)
def test_chance_is_what_guesses_get(name: str) -> None:
    task, rng = at(name, next(iter(tasks.get(name).ladder))), random.Random(0)
    batch = drawn(task, 500)
    answers = [
        [GUESSES[name](task, row, t, rng) if due[t] != IGNORED else 0 for t in range(len(row))]
        for row, due in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)
    ]
    spread = 0.5 / (batch.targets != IGNORED).sum().item() ** 0.5
    assert scored(task, batch, answers) == pytest.approx(task.chance, abs=4 * spread)


@pytest.mark.parametrize("name", SOLVED)
def test_a_player_of_the_wrong_inputs_fails(name: str) -> None:
    """The answers belong to the inputs: those to other sequences are about as good as guesses."""
    task = at(name, "published")
    batch = drawn(task, 20)
    answers = played(task, batch)
    assert scored(task, batch, answers[1:] + answers[:1]) < 0.75


@pytest.mark.parametrize("name", ["recall", "noisy-recall", "fuzzy-recall"])
def test_training_targets_every_next_token_or_the_answers(name: str) -> None:
    batch = drawn(at(name), 3, split="train")
    assert batch.targets[:, :-1].equal(batch.inputs[:, 1:])
    task = at(name, trained="answers")
    answers = drawn(task, 3, split="train").targets
    assert (answers == IGNORED).any()
    assert (answers != IGNORED).any()


def test_the_ladder_begins_easy_and_has_the_published_setting() -> None:
    for name in (*tasks.names(), *tasks.memory_names()):
        rungs = list(tasks.find(name).ladder)
        assert rungs[0] == "tiny"
        assert "published" in rungs


def test_skill_is_zero_at_chance_and_one_at_the_ceiling() -> None:
    for name in (*tasks.names(), *tasks.memory_names()):
        task = tasks.find(name)()
        assert (task.skill(task.chance), task.skill(task.ceiling)) == (0, 1)


def test_an_example_in_words() -> None:
    for name in (*tasks.names(), *tasks.memory_names()):
        told = tasks.find(name).configure({}, "tiny").example()
        assert all(read for read, _ in told)
        assert any(answer for _, answer in told)
    assert at("swaps", "tiny").example()[0] == ("(1 3)", "c")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("recall", {"length": 31}, "length: the length must be even: read '31'"),
        (
            "noisy-recall",
            {"noise_vocabulary": 30},
            "vocabulary: 30 tokens of noise leave fewer than 4 for keys and values: read '32'",
        ),
        (
            "fuzzy-recall",
            {"vocabulary": 6, "value_size": 1},
            "vocabulary: 3 different tokens of a key need more than 6: read '6'",
        ),
        (
            "fuzzy-recall",
            {"length": 12},
            "length: pairs of up to 6 tokens need a length of at least 13: read '12'",
        ),
        (
            "selective-copying",
            {"length": 33},
            "length: 16 symbols and their copies need a length of at least 34: read '33'",
        ),
        ("memorisation", {"length": 5}, "length: the length must be even: read '5'"),
        (
            "compression",
            {"vocabulary": 2},
            "vocabulary: an integer in [3, 65536]: tokens: symbols and the mark at the end:"
            " read '2'",
        ),
        (
            "swaps",
            {"start": 17},
            "start: the curriculum must start at no more than 16 swaps, the length: read '17'",
        ),
        ("reachability", {"nodes": 7}, "nodes: two equal trees need an even number: read '7'"),
        (
            "needles",
            {"length": 17},
            "length: a needle of 7 digits and its question need at least 18 tokens: read '17'",
        ),
        (
            "repeat-previous",
            {"copies": 2, "back": 9},
            "back: 8 tokens, 2 of each symbol, do not go back so far: read '9'",
        ),
        ("low-rank", {"rank": 65}, "rank: no more than dim, which is 64: read '65'"),
        (
            "switching",
            {"correlation": 1.0},
            "correlation: a number in [0.0, 0.99]: between any two coordinates of the noise:"
            " read '1.0'",
        ),
    ],
)  # fmt: skip
def test_wrong_options_are_named(name: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        tasks.find(name).configure(values)
    assert str(caught.value) == message


def test_a_rung_that_is_none() -> None:
    with pytest.raises(UsageError) as caught:
        at("swaps", "tinny", lenght=3)
    assert str(caught.value).splitlines() == [
        "no option of swaps: read 'lenght', allowed: elements, length, start;"
        " did you mean 'length'?",
        "no rung of swaps: read 'tinny', allowed: tiny, small, published, curriculum, 256, n-128,"
        " n-256, n-512; did you mean 'tiny'?",
    ]


def test_given_options_override_the_rungs() -> None:
    assert at("swaps", "curriculum", length=64).options == tasks.get("swaps").options_type(
        length=64, start=32
    )


def test_a_task_of_the_memory_is_not_trained() -> None:
    with pytest.raises(UsageError, match="switching: a task of the memory alone, which no model"):
        tasks.get("switching")
    assert issubclass(tasks.find("switching"), tasks.MemoryTask)
