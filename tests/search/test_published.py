"""The published settings: sizes, shares and distributions as their sources tell them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mnemic.search import tasks
from mnemic.search.tasks.base import IGNORED
from mnemic.search.tasks.compression import Decoder
from mnemic.search.tasks.swaps import Swaps, SwapsOptions


def published(name: str, split: Any = "test", size: int = 300, **values: object) -> Any:
    task = tasks.get(name).configure(values, "published")
    return task, task.batch(task.generator(0, split), size, split)


def kinds(task: Any, row: list[int]) -> str:
    return "".join(task.word(token)[0] for token in row)


def test_recall_is_63_pairs_and_a_question() -> None:
    task, batch = published("recall")
    assert batch.inputs.shape[1] == 127
    assert (task.keys, task.values, task.vocabulary) == (8, 8, 16)
    assert {kinds(task, row) for row in batch.inputs.tolist()} == {"kv" * 63 + "k"}
    assert (batch.targets[:, -1] != IGNORED).all()
    assert (batch.targets[:, 1::2] == IGNORED).all()
    first = [len(set(row[::2])) for row in batch.inputs.tolist()]
    assert (batch.targets != IGNORED).sum(1).tolist() == [64 - count for count in first]


def test_a_fifth_of_noisy_pairs_is_noise() -> None:
    task, batch = published("noisy-recall")
    assert (task.keys, task.values, task.noises) == (8, 8, 16)
    noise = batch.inputs[:, :-1] >= 16
    assert noise[:, ::2].equal(noise[:, 1::2])
    assert noise.double().mean().item() == pytest.approx(0.2 * 62 / 63, abs=0.01)
    assert (batch.inputs[:, -1] < 8).all()
    all_but_one = published("noisy-recall", noise=0.95, length=6)[1].inputs
    assert (all_but_one[:, :-1] < 16).any(1).all()


def test_fuzzy_keys_are_full_when_held_out_and_any_size_in_training() -> None:
    task, batch = published("fuzzy-recall")
    assert (task.keys, task.vocabulary, batch.inputs.shape[1]) == (7, 16, 128)
    sizes: dict[str, set[int]] = {"train": set(), "test": set()}
    for split in ("train", "test"):
        for row in published("fuzzy-recall", split)[1].inputs.tolist():
            told = kinds(task, row).replace("·", "")
            runs = told.replace("kv", "k v").replace("vk", "v k").split()
            sizes[split] |= {len(run) for run in runs if run[0] == "k"}
            assert all(len(run) <= 3 for run in runs)
    assert sizes == {"train": {1, 2, 3}, "test": {3}}


def test_the_last_fuzzy_pair_was_shown_before() -> None:
    task, batch = published("fuzzy-recall")
    for row, due in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        text = "".join(map(chr, row))
        end = max(t for t, token in enumerate(row) if token < task.keys) + 1
        key = text[end - 3 : end]
        assert text.count(key) >= 2
        answer = "".join(chr(token) for token in due[end - 1 :] if token != IGNORED)
        assert key + answer in text[: end - 1]


def test_selective_copying_spreads_223_blanks_before_16_symbols() -> None:
    _, batch = published("selective-copying", size=2000)
    text = batch.inputs[:, :239]
    assert (text != 14).sum(1).eq(16).all()
    assert (text[:, -1] != 14).all()
    assert batch.inputs[:, 239].eq(15).all()
    assert batch.inputs[:, 240:].eq(14).all()
    gaps = (text != 14).double().argmax(1)  # blanks before the first: binomial(223, 1/16)
    assert gaps.double().mean().item() == pytest.approx(223 / 16, abs=0.4)
    assert gaps.double().var().item() == pytest.approx(223 / 16 * 15 / 16, rel=0.15)


def test_repeat_previous_deals_three_decks_and_asks_for_the_card_63_before() -> None:
    task, batch = published("repeat-previous")
    assert batch.inputs.shape[1] == 156
    for symbol in range(4):
        assert (batch.inputs == symbol).sum(1).eq(39).all()
    assert (batch.targets[:, :63] == IGNORED).all()
    assert batch.targets[:, 63:].equal(batch.inputs[:, :93])
    assert task.chance == 0.25


def test_compression_sees_the_last_tokens_stream_alone() -> None:
    torch.manual_seed(0)
    decoder = Decoder(6)
    x = torch.randn(2, 5, 6, requires_grad=True)
    y = decoder(x)
    assert y.shape == x.shape
    (gradient,) = torch.autograd.grad(y.square().sum() + y[:, 0].sum(), [x])
    assert gradient[:, :-1].abs().max() == 0
    assert gradient[:, -1].abs().min() > 0
    assert (y[:, 0] - y[:, 1]).abs().max() > 1e-3


def test_memorised_facts_are_one_to_one_and_of_the_map_seed() -> None:
    task, _ = published("memorisation")
    truth = task.truth
    assert (len(truth), len(set(truth.tolist()))) == (127, 127)
    assert (int(truth.min()) >= 127, int(truth.max()) <= 254) == (True, True)
    assert not truth.equal(published("memorisation", map_seed=1)[0].truth)
    train = published("memorisation", "train")[1]
    assert train.targets[:, 1::2].equal(truth[train.inputs[:, ::2]])


def test_swaps_double_from_32_to_256() -> None:
    task = Swaps.configure({}, "curriculum")
    assert [level.options.length for level in task.levels] == [32, 64, 128, 256]
    assert task.levels[-1] is task
    assert {level.vocabulary for level in task.levels} == {15}
    assert [level.options.length for level in Swaps(SwapsOptions(length=10, start=3)).levels] == [
        3, 6, 10,
    ]  # fmt: skip
    assert len(Swaps().levels) == 1
    assert not task.mastered(0.98)
    assert task.mastered(0.995)


def test_all_swaps_are_alike() -> None:
    _, batch = published("swaps", size=1000)
    shares = torch.bincount(batch.inputs.flatten(), minlength=15) / batch.inputs.numel()
    torch.testing.assert_close(shares[5:], torch.full((10,), 0.1), atol=0.015, rtol=0)
    assert shares[:5].sum() == 0


def test_both_trees_have_half_of_the_nodes() -> None:
    for form in ("pair", "two"):
        _, batch = published("reachability", tokens=form)
        yes = (batch.targets == 1).sum(1)
        no = (batch.targets == 0).sum(1)
        assert yes.eq(15).all()
        assert no.eq(16).all()
    labels = (published("reachability")[1].inputs - 2) // 32
    assert labels.sort(1).values.eq(torch.arange(32)).all()


def test_two_tokens_a_node_play_as_well() -> None:
    from solvers import reachability

    task, batch = published("reachability", tokens="two", size=10)
    for row, due in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        answers = list(reachability(task, row))
        assert [a for a, d in zip(answers, due, strict=True) if d != IGNORED] == [
            d for d in due if d != IGNORED
        ]


def test_needles_lie_anywhere_and_whole_numbers_are_counted() -> None:
    task, batch = published("needles", length=64, digits=2)
    places = (batch.inputs == 10).double().argmax(1)
    assert places.min() < 5
    assert places.max() > 50
    whole = tasks.get("needles").configure({"scored": "numbers", "length": 64, "digits": 2})
    logits = torch.nn.functional.one_hot(batch.targets.clamp(min=0), task.vocabulary).float()
    logits[:150, -1] = 0  # the last digit of half of the sequences
    logits[:150, -1, -1] = 1
    assert (task.score(logits, batch.targets), whole.score(logits, batch.targets)) == (0.75, 0.5)
    assert whole.chance == pytest.approx(0.01)


def test_words_of_a_random_haystack_fall_as_one_over_rank() -> None:
    task, batch = published("needles", haystack="random", words=24, size=50)
    words = batch.inputs[batch.inputs >= 11 + 64] - 75
    shares = torch.bincount(words, minlength=24).double() / len(words)
    weights = 1 / torch.arange(1, 25, dtype=torch.double)
    torch.testing.assert_close(shares, weights / weights.sum(), atol=0.01, rtol=0)
    assert task.chance == 0.1
