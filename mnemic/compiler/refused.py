"""What is not derived: the reason, its mathematics, and where in the spec it was asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Refused(Exception):
    """Something has no derivation.

    Args:
        message: the reason; ``{}`` where an expression stands, if there are any.
        shown: those expressions.
        place: the entry that is answerable; else what ``asked_at`` says.
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
    """Give what is refused within ``place`` as its place in the spec, unless it has one."""
    try:
        yield
    except Refused as refusal:
        refusal.place = refusal.place or place
        raise
