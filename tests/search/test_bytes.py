"""The text is Python's own, its split holds whole modules out, the score is bits a byte."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from mnemic.search.tasks.bytes import Bytes, BytesOptions, corpus, held_out


def test_targets_are_the_next_bytes_of_the_split() -> None:
    task = Bytes(BytesOptions(length=32))
    drawn = task.batch(task.generator(1, "test"), 4, "test")
    assert drawn.inputs.shape == drawn.targets.shape == (4, 32)
    assert drawn.inputs.dtype == torch.long
    assert drawn.inputs[:, 1:].equal(drawn.targets[:, :-1])
    text = corpus("test").numpy().tobytes()
    assert all(bytes(row) in text for row in drawn.inputs.tolist())
    again = task.batch(task.generator(1, "test"), 4, "test")
    assert again.inputs.equal(drawn.inputs)


def test_a_module_is_in_one_split_whole() -> None:
    source = Path(json.decoder.__file__).read_bytes()
    texts = {split: corpus(split).numpy().tobytes() for split in ("train", "test")}
    mine, other = ("test", "train") if held_out("json.decoder") else ("train", "test")
    assert source in texts[mine]
    assert source not in texts[other]
    assert 0.02 < len(texts["test"]) / len(texts["train"]) < 0.4


def test_the_hash_of_a_name_decides() -> None:
    names = [f"module{i}" for i in range(1000)]
    assert 60 < sum(map(held_out, names)) < 140
    assert held_out("ast") == held_out("ast")


def test_score_is_bits() -> None:
    task = Bytes()
    targets = torch.randint(256, (2, 5))
    targets[0, 0] = -100
    assert task.score(torch.zeros(2, 5, 256), targets) == pytest.approx(8.0) == task.chance
    logits = torch.nn.functional.one_hot(targets.clamp(min=0), 256) * math.log(255)
    assert task.score(logits, targets) == pytest.approx(1.0)


def test_facts_name_the_text() -> None:
    facts = Bytes().facts
    assert facts["train bytes"] == len(corpus("train"))
    assert len(str(facts["test sha256"])) == 64
