"""Ctrl-C put off until a step is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Put Ctrl-C off; yield a function that raises its KeyboardInterrupt if it was pressed since.

    The second Ctrl-C is not put off. Outside the main thread, which gets no signals, nothing
    is changed.
    """
    pressed = threading.Event()

    def press(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    def deliver() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield deliver
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield deliver
    finally:
        signal.signal(signal.SIGINT, before)
