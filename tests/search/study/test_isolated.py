"""Functions in processes of their own: answers, and every way to have none."""

import os
import threading
import time

import deeds
import pytest
from postgres import until

from mnemic.search.study.isolated import Answer, Bounds, Failure, _huge_pages, isolated

PLENTY = Bounds(60.0, 2.0)


def told(tmp_path, function, *arguments, bounds=PLENTY):
    return isolated(function, *arguments, bounds=bounds, log=tmp_path / "log")


def test_an_answer(tmp_path):
    assert told(tmp_path, deeds.product, 6, 7) == Answer(42)


@pytest.mark.parametrize(
    ("function", "arguments", "bounds", "failure"),
    [
        (deeds.killed, (), PLENTY, Failure("crash", "killed by SIGSEGV")),
        (deeds.broken, (), PLENTY, Failure("crash", "ValueError: no such shape")),
        (deeds.forgotten, (), PLENTY, Failure("crash", "Forgotten: a.b: too old")),
        (deeds.diverged, (), PLENTY, Failure("not finite", "the loss is nan")),
        (deeds.refused, (), PLENTY, Failure("refused", "bias: makes no sense")),
        (deeds.endless, (), Bounds(0.5, 1.0), Failure("time", "took more than 0.5 s")),
    ],
)
def test_a_failure_is_told(tmp_path, function, arguments, bounds, failure):
    assert told(tmp_path, function, *arguments, bounds=bounds) == failure


@pytest.mark.parametrize(("function", "arguments"), [(deeds.greedy, (3.0,)),
                                                      (deeds.greedy_list, ())])  # fmt: skip
def test_memory_is_bounded(tmp_path, function, arguments):
    found = told(tmp_path, function, *arguments, bounds=Bounds(60.0, 0.5))
    assert found == Failure("memory", "out of memory: took more than 0.5 GiB")


def test_what_a_process_prints_is_in_its_log(tmp_path):
    told(tmp_path, deeds.broken)
    text = (tmp_path / "log").read_text()
    assert text.startswith("some words") or "some words" in text
    assert "Traceback" in text


@pytest.mark.parametrize("earlier", ["KeyboardInterrupt\n", "MemoryError\n"])
def test_what_an_earlier_process_printed_is_none_of_its_own(tmp_path, earlier):
    (tmp_path / "log").write_text(earlier)
    assert told(tmp_path, deeds.killed) == Failure("crash", "killed by SIGSEGV")


def test_an_interrupted_process_may_save(tmp_path):
    stopping, found = threading.Event(), []
    mark = tmp_path / "saved"

    def ask():
        found.append(isolated(deeds.saves, mark, bounds=PLENTY, log=tmp_path / "log",
                              stopping=stopping))  # fmt: skip

    thread = threading.Thread(target=ask)
    thread.start()
    until(mark.with_suffix(".begun").exists)
    began = time.monotonic()
    stopping.set()
    thread.join()
    assert found == [Failure("interrupted", "interrupted")]
    assert mark.exists()
    assert time.monotonic() - began < 8


def test_a_process_hears_ctrl_c_of_a_terminal_only_from_us(tmp_path):
    """It is in a group of its own: the second of two would keep a training run from saving."""
    found = told(tmp_path, deeds.group)
    assert isinstance(found, Answer)
    pid, group = found.value
    assert pid == group != os.getpgrp()


def test_a_process_has_huge_pages_and_ours_keeps_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert told(tmp_path, os.getenv, "GLIBC_TUNABLES") == Answer("glibc.malloc.hugetlb=1")
    assert "GLIBC_TUNABLES" not in os.environ


def test_tunables_that_a_user_has_set_are_kept(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    with _huge_pages():
        assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.check=1"
    assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.check=1"
