"""Defer Ctrl-C and SIGTERM until a step is complete."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred(*, terminate: bool = False) -> Iterator[Callable[[], None]]:
    """Defer Ctrl-C; yield a function that raises KeyboardInterrupt if it was pressed since.

    The second Ctrl-C is not deferred. Outside the main thread, where no signals arrive, nothing
    is changed.

    Args:
        terminate: also defer SIGTERM if the process has a handler for it, which the yielded
            function then calls; without a handler SIGTERM still ends the process at once.
    """
    pressed = threading.Event()
    asked = threading.Event()

    def press(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set() and callable(ending):
            ending(number, frame)
        asked.set()

    def deliver() -> None:
        if asked.is_set() and callable(ending):
            ending(signal.SIGTERM, None)
        if pressed.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield deliver
        return
    ending = signal.getsignal(signal.SIGTERM) if terminate else None
    before = signal.signal(signal.SIGINT, press)
    if callable(ending):
        signal.signal(signal.SIGTERM, ask)
    try:
        yield deliver
    finally:
        signal.signal(signal.SIGINT, before)
        if callable(ending):
            signal.signal(signal.SIGTERM, ending)
