"""Run several calls at a time, each of which waits for its own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(
    function: Callable[[T], R], items: Sequence[T], jobs: int, stopping: Event
) -> Iterator[R]:
    """Yield ``function`` of each item, ``jobs`` at a time, in the order of completion.

    An early end, by Ctrl-C or an error, sets ``stopping``, and no further call begins.
    """
    pool = ThreadPoolExecutor(jobs)
    try:
        for done in as_completed([pool.submit(function, item) for item in items]):
            yield done.result()
    except BaseException:
        stopping.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
