"""Wait for a storage that is temporarily unreachable, up to a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from types import FunctionType
from typing import Any, Final

from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from mnemic.errors import EnvironmentFailed

CALLS: Final = tuple(
    name for name, value in vars(RDBStorage).items()
    if isinstance(value, FunctionType) and not name.startswith("__")
)  # fmt: skip
"""All that may be asked of a storage; Optuna's cache asks for private ones too."""


@dataclass
class Patience:
    """How long to wait for an unreachable storage.

    Args:
        seconds: time limit from the first failing call; after it the error is raised.
        first: seconds until the second try; each further wait is twice as long.
        longest: the most seconds between two tries.
        tell: called once when the storage is gone, and once when it is back.
        stopping: when set, no call waits.
    """

    seconds: float = 180.0
    first: float = 0.5
    longest: float = 10.0
    tell: Callable[[str], None] = lambda line: None
    stopping: threading.Event = field(default_factory=threading.Event)
    _gone: threading.Event = field(default_factory=threading.Event)
    _inside: threading.local = field(default_factory=threading.local)

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a storage's function, retrying while the storage is unreachable."""
        deadline, pause = time.monotonic() + self.seconds, self.first
        while True:
            try:
                found = function(*args, **options)
            except (StorageInternalError, DBAPIError) as error:
                left = deadline - time.monotonic()
                if not gone(error) or left <= 0 or self.stopping.is_set():
                    raise
                if not self._gone.is_set():
                    self._gone.set()
                    self.tell(f"the storage is gone: {reason(error)}; waiting up to {left:.0f} s")
                self.stopping.wait(min(pause, left))
                pause = min(2 * pause, self.longest)
            else:
                if self._gone.is_set():
                    self._gone.clear()
                    self.tell("the storage is back")
                return found

    def patient(self, storage: RDBStorage) -> RDBStorage:
        """Return the storage with calls that wait from now on; its internal calls do not."""
        for name in CALLS:
            setattr(storage, name, self._waiting(getattr(storage, name)))
        return storage

    def _waiting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if getattr(self._inside, "call", False):
                return function(*args, **options)
            self._inside.call = True
            try:
                return self.call(function, *args, **options)
            finally:
                self._inside.call = False

        return call


def gone(error: BaseException) -> bool:
    """Return whether an error means that the storage is unreachable, not that it refused."""
    cause = error if isinstance(error, DBAPIError) else error.__cause__
    if isinstance(cause, DBAPIError) and cause.connection_invalidated:
        return True
    return isinstance(cause, OperationalError | InterfaceError)


def reason(error: BaseException) -> str:
    """Return the first line of what a storage's driver says."""
    cause = error.__cause__ or error
    told = getattr(cause, "orig", None) or cause
    return str(told).strip().splitlines()[0]


@contextmanager
def told_when_lost() -> Iterator[None]:
    """Convert the error of a storage that stays unreachable, or refuses, into one line.

    Raises:
        EnvironmentFailed: in place of SQLAlchemy's and Optuna's errors.
    """
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        raise EnvironmentFailed(
            f"the storage failed: {reason(error)}; its trials are kept: run the same command when "
            "it is back, to continue"
        ) from error
