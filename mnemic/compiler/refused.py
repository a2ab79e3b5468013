"""The error for what is not derived: the reason, its expressions, and the place in the spec."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Refused(Exception):
    """Something has no derivation.

    Args:
        message: the reason, with ``{}`` for each expression.
        shown: those expressions.
        place: the spec's entry at fault; if not given, the place of ``asked_at``.
    """

    def __init__(self, message: str, *shown: Any, place: str = "") -> None:
        super().__init__(message)
        self.message, self.shown, self.place = message, shown, place

    def written_by(self, text: Callable[[Any], str]) -> str:
        """Return the reason, its expressions written by ``text``."""
        return self.message.format(*map(text, self.shown)) if self.shown else self.message

    def __str__(self) -> str:
        return self.written_by(str)


@contextmanager
def asked_at(place: str) -> Iterator[None]:
    """Set ``place`` as the place of whatever is refused in this context and has none yet."""
    try:
        yield
    except Refused as refusal:
        refusal.place = refusal.place or place
        raise
