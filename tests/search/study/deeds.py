"""Functions that a process of its own comes to grief with."""

import os
import signal
import time
from pathlib import Path

import torch

from mnemic.errors import CheckFailed, InvalidSpec, Issue


def product(a: int, b: int) -> int:
    return a * b


def group() -> tuple[int, int]:
    return os.getpid(), os.getpgrp()


def greedy(gigabytes: float) -> int:
    return torch.ones(int(gigabytes * 2**28)).numel()


def greedy_list() -> int:
    return len([bytearray(2**20) for _ in range(2**14)])


def killed() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def broken() -> None:
    print("some words")
    raise ValueError("no such shape")


class Forgotten(ArithmeticError):
    """An error of a module of its own, which a traceback names."""


def forgotten() -> None:
    raise Forgotten("a.b: too old")


def diverged() -> None:
    raise CheckFailed("the loss is nan")


def refused() -> None:
    raise InvalidSpec([Issue("makes no sense", "bias")])


def endless() -> None:
    time.sleep(1000)


def saves(path: Path) -> None:
    try:
        path.with_suffix(".begun").touch()
        time.sleep(1000)
    except KeyboardInterrupt:
        path.touch()
        raise
