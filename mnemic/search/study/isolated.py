"""Call a function in its own process: a failure there costs one result, and is reported.

Processes are forked from a server that has imported torch already, so that one starts in some
hundredths of a second and inherits neither threads nor connections.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

from mnemic.errors import CheckFailed, EnvironmentFailed, InvalidSpec, MnemicError

T = TypeVar("T")
Kind = Literal["refused", "not finite", "memory", "time", "crash", "interrupted"]

PRELOADED: Final = ["mnemic.search.study.ready"]
TUNABLES: Final = "GLIBC_TUNABLES"
HUGE_PAGES: Final = "glibc.malloc.hugetlb=1"
"""What asks the C library for pages of 2 MiB: a step of training makes and frees many tensors, and
every first touch of a small page is a fault."""
NO_MEMORY: Final = ("allocate memory", "MemoryError", "bad_alloc", "out of memory")
PATIENCE: Final = 10.0
"""Seconds that an interrupted process has to save."""
TURN: Final = 0.2
"""Seconds between looks at the clock."""
_STARTING: Final = threading.Lock()
_PATH: Final = re.compile(r"^(\w+\.)+(?=\w+: )")
"""The module that a traceback's last line begins with, before the exception's name."""


@dataclass(frozen=True)
class Failure:
    """Why a call in its own process returned no result."""

    kind: Kind
    why: str


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The result of a function that was called in its own process."""

    value: T


@dataclass(frozen=True)
class Bounds:
    """The limits of a process: seconds of wall time, and GiB beyond the program's own."""

    seconds: float
    memory: float


def isolated(
    function: Callable[..., T], *arguments: Any, bounds: Bounds, log: Path,
    stopping: threading.Event | None = None,
) -> Answer[T] | Failure:  # fmt: skip
    """Call ``function`` in its own process.

    Args:
        function: a function of a module; it and its arguments must be picklable.
        bounds: its limits. Memory is limited only on Linux.
        log: the file for the process's output and traceback.
        stopping: when set, the process is interrupted as by Ctrl-C.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    ours, theirs = context.Pipe()
    told = (theirs, function, arguments, bounds.memory, os.fspath(log))
    before = log.stat().st_size if log.exists() else 0
    process = context.Process(target=_call, args=told, daemon=True)
    with _STARTING, _without_main(), _huge_pages():
        process.start()
    theirs.close()
    try:
        found: Answer[T] | Failure = _answer(
            process, ours, bounds, (log, before), stopping or threading.Event()
        )
        return found
    finally:
        _end(process)
        ours.close()


def _answer(
    process: BaseProcess, ours: Connection, bounds: Bounds, log: tuple[Path, int],
    stopping: threading.Event,
) -> Any:  # fmt: skip
    deadline = time.monotonic() + bounds.seconds
    while not ours.poll(min(TURN, max(0.0, deadline - time.monotonic()))):
        if stopping.is_set():
            return _interrupted(process)
        if time.monotonic() >= deadline:
            return Failure("time", f"took more than {bounds.seconds:g} s")
    try:
        good, value = ours.recv()
    except EOFError:
        process.join()
        if stopping.is_set():
            return _interrupted(process)
        return _death(process.exitcode or 0, bounds.memory, _printed(*log))
    return Answer(value) if good else _to_failure(value)


def _interrupted(process: BaseProcess) -> Failure:
    """Let the process save, then end it; return a failure that says it was interrupted."""
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGINT)
        process.join(PATIENCE)
    return Failure("interrupted", "interrupted")


def _end(process: BaseProcess) -> None:
    """Kill a process: its result is received or saved, so it need not clean up."""
    process.kill()
    process.join()


def _to_failure(error: MnemicError) -> Failure:
    """Convert one of our own errors, as the process sent it, to a failure."""
    match error:
        case InvalidSpec():
            return Failure("refused", str(error).splitlines()[0])
        case CheckFailed():
            return Failure("not finite", str(error))
        case EnvironmentFailed():
            return Failure("crash", str(error))
    return Failure("refused", str(error))


def _printed(log: Path, before: int) -> list[str]:
    """Return the lines of the log that this process printed, not earlier ones; none without log."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(before)
        return file.read().decode(errors="replace").strip().splitlines()


def _death(code: int, memory: float, lines: list[str]) -> Failure:
    """Say why a process ended without a result: a signal, or the last line that it printed."""
    last = lines[-1] if lines else ""
    said = "\n".join(lines[-5:])
    if last == "KeyboardInterrupt":
        return Failure("interrupted", "interrupted")
    if any(word in said for word in NO_MEMORY):
        return Failure("memory", f"out of memory: took more than {memory:g} GiB")
    if code < 0:
        name = signal.Signals(-code).name
        hint = ", perhaps by the system for want of memory" if code == -signal.SIGKILL else ""
        return Failure("crash", f"killed by {name}{hint}")
    return Failure("crash", _PATH.sub("", last) or f"exit code {code}")


def _call(
    theirs: Connection, function: Callable[..., Any], arguments: Any, memory: float, log: str
) -> None:
    """Call a function in the process and send the result; foreign exceptions end the process.

    The process gets its own process group: a terminal sends Ctrl-C to the whole group and the
    calling program forwards it, so the process would receive it twice and could not save. A
    cluster does the same with SIGTERM, which is therefore ignored.
    """
    os.setpgrp()
    _print_to(log)
    threading.Thread(target=_follow, args=(theirs,), daemon=True).start()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    _bound(memory)
    try:
        answer: tuple[bool, Any] = (True, function(*arguments))
    except MnemicError as error:
        answer = (False, error)
    sys.stdout.flush()
    theirs.send(answer)


def _print_to(log: str) -> None:
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    os.close(stream)


def _follow(theirs: Connection) -> None:
    """End this process when its caller has ended, since nobody would receive the result."""
    theirs.poll(None)
    os._exit(1)


def _bound(memory: float) -> None:
    """Limit the memory that the process may allocate from here on."""
    if sys.platform != "linux":
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    most = pages * resource.getpagesize() + int(memory * 2**30)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep the new process from running this program's main module again."""
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name, None) for name in ("__spec__", "__file__")}
    for name in kept:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(main, name, value)


@contextmanager
def _huge_pages() -> Iterator[None]:
    """Enable huge pages in the server from which processes are forked, if the C library is glibc
    2.35 or newer; tunables that the user has set stay as they are."""
    if TUNABLES in os.environ:
        yield
        return
    os.environ[TUNABLES] = HUGE_PAGES
    try:
        yield
    finally:
        del os.environ[TUNABLES]
