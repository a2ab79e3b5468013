"""A spec's data before validation: the documents that it is composed of, and places in them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from mnemic.dsl.reading import DEEPEST, LARGEST_INTEGER, MOST_NODES, Document, Place, Position
from mnemic.errors import InvalidSpec, Issue

_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[]+)")
_AT: Final = re.compile(r":(\d+):(\d+)(?= |$)")
_HALF_A_PAIR: Final = re.compile(r"[\ud800-\udfff]")


def dotted(place: Place) -> str:
    """Return a place as text: ``memory.chain[0]``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return "".join(steps).lstrip(".")


def place_of(text: str) -> Place:
    """Return the place that ``dotted`` wrote."""
    return tuple(int(i) if i else word for i, word in _STEP.findall(text))


@dataclass(frozen=True)
class Layers:
    """The documents of a spec, the spec's own first, then its base, then its base's base."""

    documents: tuple[Document, ...]

    def where(self, place: Place, *, key: bool = False) -> str:
        """Return the position and path of a place, in the document that its value comes from."""
        document = self.owner(place)
        return document.where(place, key=key) if document.positions else dotted(place)

    def order(self, issue: Issue) -> tuple[int, Position]:
        """Return a key that sorts issues as a text is read: by document, then by position."""
        for i, document in enumerate(self.documents):
            at = _AT.match(issue.where.removeprefix(document.source))
            if document.positions and issue.where.startswith(document.source) and at:
                return i, (int(at[1]), int(at[2]))
        return 0, (0, 0)

    def owner(self, place: Place) -> Document:
        """Return the first document that has the place, or a value that replaces it there."""
        for document in self.documents:
            if self._decides(document.data, place):
                return document
        return self.owner(place[:-1]) if place else self.documents[0]

    def written_out(self, place: Place) -> bool:
        """Return whether a mapping stands at the place, rather than a short form."""
        data = self.owner(place).data
        for step in place:
            data = data.get(step) if isinstance(data, dict) else _item(data, step)
        return isinstance(data, dict)

    @staticmethod
    def _decides(data: Any, place: Place) -> bool:
        for step in place:
            if not isinstance(data, dict):
                return True
            if step not in data:
                return False
            data = data[step]
        return True


def _item(data: Any, step: str | int) -> Any:
    inside = isinstance(data, list) and isinstance(step, int) and step < len(data)
    return data[step] if inside else None


def from_mapping(mapping: Mapping[Any, Any]) -> Document:
    """Return a mapping as a document without positions: plain data, within the caps of a file."""
    return Document(_Plain().value(mapping, ()), "", {}, {})


class _Plain:
    """A copy as dictionaries, lists and scalars; counts what it copies."""

    def __init__(self) -> None:
        self.count = 0

    def value(self, data: Any, place: Place) -> Any:
        self.count += 1
        if self.count > MOST_NODES or len(place) > DEEPEST:
            _refuse(f"nested more than {DEEPEST} deep, or more than {MOST_NODES} values", place[:3])
        match data:
            case Mapping():
                return {self.key(k, place): self.value(v, (*place, k)) for k, v in data.items()}
            case list() | tuple():
                return [self.value(item, (*place, i)) for i, item in enumerate(data)]
            case str():
                return _text(data, place)
            case None | bool() | int() | float():
                return _number(data, place)
        _refuse("must be plain data", place, type(data).__name__)

    @staticmethod
    def key(key: Any, place: Place) -> str:
        if not isinstance(key, str):
            _refuse("a key must be a string", place, repr(key))
        return _text(key, place)


def _text(text: str, place: Place) -> str:
    if _HALF_A_PAIR.search(text):
        _refuse("half a surrogate pair", place, ascii(text))
    return str(text)


def _number(value: float | None, place: Place) -> float | None:
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        _refuse("an integer of more than 64 bits", place)
    return value


def _refuse(message: str, place: Place, read: str | None = None) -> NoReturn:
    raise InvalidSpec([Issue(message, dotted(place), read)])
