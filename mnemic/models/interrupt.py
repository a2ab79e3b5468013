"""Ctrl-C and SIGTERM put off until a step is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred(*, terminate: bool = False) -> Iterator[Callable[[], None]]:
    """Put Ctrl-C off; yield a function that raises its KeyboardInterrupt if it was pressed since.

    The second Ctrl-C is not put off. Outside the main thread, which gets no signals, nothing
    is changed.

    Args:
        terminate: put SIGTERM off as well, where the process has a handler for it, which the
            yielded function then calls; one that would end the process at once still does.
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
