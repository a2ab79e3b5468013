"""A worker: trials one after another, several at a time, until no more are wanted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock
from typing import NoReturn

from optuna.trial import Trial

from mnemic.errors import EnvironmentFailed
from mnemic.models.device import OF_SPACE, demand_device
from mnemic.search.study.patience import told_when_lost
from mnemic.search.study.records import AGAIN, CRASHED, DUPLICATE, FINISHED
from mnemic.search.study.search import Search
from mnemic.search.study.trial import End, do

PAUSE = 0.5
"""Seconds between looks at whether a worker is to stop."""

CRASHES = 5
"""Trials that crash one after another before a worker stops: that is the machine's fault."""


@dataclass(frozen=True)
class Done:
    """What a worker did, and why it stopped."""

    trials: int
    seconds: float
    reason: str


def work_on(search: Search, jobs: int = 1) -> Done:
    """Do trials until the space's number is reached; ``jobs`` at a time.

    On Ctrl-C running trials save and are requeued; the same call resumes them.

    Raises:
        EnvironmentFailed: the storage is unreachable, the device is not on this machine, or trials
            crash one after another; these are requeued.
        UsageError: no such device.
        KeyboardInterrupt: Ctrl-C.
    """
    demand_device(search.space.settings.device, OF_SPACE)
    search.queue_starts()
    began, done, crashed = time.monotonic(), list[int](), _Crashed()
    with told_when_lost(), ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(_thread, search, done, crashed) for _ in range(jobs)]
        try:
            reason = _first_reason(running)
        except BaseException:
            search.stopping.set()
            wait(running)
            raise
    return Done(len(done), time.monotonic() - began, reason)


def _over(running: list[Future[str]]) -> Iterator[Future[str]]:
    return (future for future in running if future.done())


def _first_reason(running: list[Future[str]]) -> str:
    """Wait for all workers, still reacting to Ctrl-C; return why the first one stopped."""
    while not all(future.done() for future in running):
        wait(running, PAUSE)
        for future in _over(running):
            future.result()
    return running[0].result()


class _Crashed:
    """The trials of a worker that crashed one after another, whichever of its threads did them."""

    def __init__(self) -> None:
        self._numbers, self._lock = list[int](), Lock()

    def after(self, number: int, crashed: bool) -> list[int]:
        """Add a trial if it crashed, else begin anew; return those in a row."""
        with self._lock:
            self._numbers = [*self._numbers, number] if crashed else []
            return self._numbers


def _thread(search: Search, done: list[int], crashed: _Crashed) -> str:
    """Do trials; the thread's connection is closed at the end."""
    try:
        return _loop(search, done, crashed)
    finally:
        search.storage.remove_session()


def _loop(search: Search, done: list[int], crashed: _Crashed) -> str:
    """Do trials one after another, and return why it stopped."""
    while not search.stopping.is_set():
        reason = search.wanted()
        trial = search.ask(repeated=reason is not None)
        if trial is None:
            if reason is None:
                continue
            if not search.unclaimed():
                return reason
            search.stopping.wait(PAUSE)
            continue
        with search.beating(trial):
            end = do(search, trial)
        done.append(trial.number)
        search.tell(line(search, trial, end))
        in_a_row = crashed.after(trial.number, end.kind == CRASHED)
        if len(in_a_row) >= CRASHES:
            _break_off(search, in_a_row, end.why)
    return "stopped"


def _break_off(search: Search, crashed: list[int], why: str) -> NoReturn:
    """Stop the worker, requeue trials that crashed one after another, each once, and raise.

    Raises:
        EnvironmentFailed: always.
    """
    search.stopping.set()  # first, or another thread would take what is requeued here
    search.try_again(lambda one: one.number in crashed and AGAIN not in one.attributes)
    raise EnvironmentFailed(
        f"{len(crashed)} trials one after another have crashed, the last one: {why}; their logs "
        f"are in {search.folder / 'logs'}; the same command does them again"
    )


def line(search: Search, trial: Trial, end: End) -> str:
    """Describe a trial in one line."""
    objectives = search.space.settings.objectives
    told = ", ".join(f"{n} {v:.4g}" for n, v in zip(objectives, end.values or (), strict=False))
    why = f": {end.why}" if end.why and end.kind not in (FINISHED, DUPLICATE) else ""
    return f"trial {trial.number} {end.kind}{why}" + (f": {told}" if told else "")
