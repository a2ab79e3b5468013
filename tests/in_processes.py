"""A function in several processes at once, which talk over gloo."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch import distributed

SECONDS = 120.0
"""In which all have to be done."""


def in_processes(count: int, place: Path, function: Callable[[], Any]) -> list[Any]:
    """Return what a function gives in each of so many processes, forked from this one.

    They share what was imported and compiled here. A process group stands when the function is
    called; an exception in one of them fails the test, with its traceback.

    Args:
        count: of processes.
        place: an empty folder.
        function: without arguments; what it returns is pickled.
    """
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_one, args=(rank, count, place, function)) for rank in range(count)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        for worker in workers:
            worker.start()
    for worker in workers:
        worker.join(SECONDS)
    late = [worker.pid for worker in workers if worker.is_alive()]
    for worker in workers:
        worker.kill()
    told = [path.read_text() for path in sorted(place.glob("*.failed"))]
    assert not told, "\n".join(told)
    assert not late, f"processes {late} wait for each other"
    return [pickle.loads((place / f"{rank}.pickle").read_bytes()) for rank in range(count)]


def _one(rank: int, count: int, place: Path, function: Callable[[], Any]) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # asked for, and not used
    try:
        distributed.init_process_group(
            "gloo", init_method=f"file://{place}/store", rank=rank, world_size=count,
            timeout=timedelta(seconds=SECONDS),
        )  # fmt: skip
        found = pickle.dumps(function())
        (place / f"{rank}.pickle").write_bytes(found)
        distributed.destroy_process_group()
    except BaseException:
        (place / f"{rank}.failed").write_text(f"process {rank}: {traceback.format_exc()}")
        os._exit(1)  # the others hear of it by the closed connection
