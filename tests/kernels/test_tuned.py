"""Answers of the tuner on disk: for whom they speak, and that files are whole."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mnemic.codegen import cache
from mnemic.codegen.support import tuned, verified, versions
from mnemic.codegen.support.configuration import Choices, Configuration
from mnemic.codegen.support.tuned import Answer, Question

CPU = torch.device("cpu")
MODEL, BEST = Configuration(64, 64, 8), Configuration(32, 16, 4, 2)
ASKED = Question("chunk", (("K", 64), ("V", 64)), 4096, 128, "bfloat16", gradient=False)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path))
    versions.announced.cache_clear()
    tuned.forget()


def chosen(question: Question = ASKED, *, tunable: bool = True) -> Configuration:
    tuned.forget()
    only = Choices((64,), (64,), (8,), (1,))
    return tuned.chosen(question, CPU, lambda: MODEL, lambda _: only, tunable=tunable)


def store(question: Question = ASKED, answer: Answer = Answer(BEST)) -> Path:
    return tuned.store(question, CPU, answer, {"rule": "x"})


def test_without_an_answer_the_model_chooses() -> None:
    assert chosen() == MODEL
    store()
    assert chosen() == BEST
    assert chosen(tunable=False) == MODEL


def test_an_answer_is_for_a_class_of_shapes() -> None:
    def asked(batch: int, length: int, heads: int) -> Question:
        rows = torch.empty((), dtype=torch.bfloat16).expand(batch, length, heads, 64)
        return Question.of("chunk", {"V": 64, "K": 64}, rows, gradient=False)

    assert asked(8, 4096, 16) == asked(8, 2049, 9) == asked(4, 3000, 32) == ASKED
    assert asked(8, 4097, 16) != ASKED
    assert asked(8, 4096, 17) != ASKED


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": "token"}, {"sizes": (("K", 64), ("V", 128))}, {"length": 2048},
        {"memories": 64}, {"dtype": "float16"}, {"gradient": True},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_another_question_is_not_answered(other: dict[str, Any]) -> None:
    store()
    assert chosen(replace(ASKED, **other)) == MODEL
    assert chosen() == BEST


@pytest.mark.parametrize(
    "part", ["code", "device", "capability", "torch", "triton", "cuda", "interpreted"]
)
def test_another_setting_is_not_answered(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store()
    here = verified.setting(CPU)
    with monkeypatch.context() as other:
        if part == "code":
            other.setattr(verified, "digest", lambda: "0" * 64)
        elif part == "interpreted":
            other.setattr(versions, "interpreting", lambda: True)
        else:
            assert part in here
            other.setattr(verified, "setting", lambda device: {**here, part: "another"})
        assert chosen() == MODEL
    assert chosen() == BEST


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"rows": 32', '"rows": "many"'),
        lambda text: text.replace('"warps": 4', '"warps": 3'),
        lambda text: text.replace('"block": 16,', ""),
    ],
    ids=["torn", "another", "words", "no power of two", "incomplete"],
)
def test_what_cannot_be_read_is_told_once_and_ignored(spoil: Callable[[str], str]) -> None:
    path = store()
    path.write_text(spoil(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.warns(RuntimeWarning, match=f"{path.name}: cannot be read and is ignored"):
        assert chosen() == MODEL
    assert chosen() == MODEL  # a second warning would be an error
    store()
    assert chosen() == BEST


def test_a_file_of_another_question_under_this_name_is_ignored() -> None:
    path = store()
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"length": 4096', '"length": 2048'), encoding="utf-8")
    assert chosen() == MODEL


def test_writers_that_meet_leave_a_whole_file() -> None:
    path = store()
    answers = [Answer(Configuration(rows, block, 8)) for rows in (16, 32) for block in (16, 64)]
    done = threading.Event()

    def write(answer: Answer) -> None:
        for _ in range(25):
            store(answer=answer)

    read: list[Any] = []

    def watch() -> None:
        while not done.is_set():
            read.append(json.loads(path.read_text(encoding="utf-8"))["choice"]["block"])

    reader = threading.Thread(target=watch)
    writers = [threading.Thread(target=write, args=(answer,)) for answer in answers]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert read
    assert set(read) <= {16, 64}
    assert Answer(chosen()) in answers
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_no_right_cut_is_an_answer_too() -> None:
    store(answer=Answer(None, "output: error 1.0"))
    assert chosen() == MODEL
    assert tuned.failed(ASKED, CPU) == (
        "no way of cutting its kernel passed its check here (output: error 1.0)"
    )
    store()
    assert tuned.failed(ASKED, CPU) is None


def test_what_is_tried_goes_before_what_is_known() -> None:
    store(answer=Answer(None, "output: error 1.0"))
    with tuned.forcing(ASKED, BEST), tuned.recording() as seen:
        assert tuned.failed(ASKED, CPU) is None
        assert chosen(replace(ASKED, length=32)) == BEST
        assert chosen(replace(ASKED, gradient=True)) == MODEL
    assert [(run.chosen, run.model) for run in seen] == [(BEST, MODEL), (MODEL, MODEL)]
    with tuned.unread():
        assert tuned.failed(ASKED, CPU) is None


@pytest.mark.parametrize("told", [None, "elsewhere"])
def test_the_cache_lies_where_the_compiler_keeps_its_own(
    told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(tuned.VARIABLE)
    if told is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", f"/{told}")
    assert tuned.root() == cache.root()
    monkeypatch.setenv(tuned.VARIABLE, "mine")
    assert tuned.root() == cache.root() == Path("mine")
