"""YAML to plain data, strictly, with the line and column of every value.

PyYAML's pure-Python scanner and parser give the events; what they mean is decided
here: YAML 1.2's core scalars, no tags, no merge keys, no duplicate keys, and caps
that keep a hostile file from costing more than a moment.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

import yaml
from yaml import events

from mnemic.errors import InvalidSpec, Issue, UsageError

MOST_BYTES: Final = 256 * 1024
DEEPEST: Final = 32
MOST_NODES: Final = 20_000
MOST_ALIASES: Final = 64
MOST_ISSUES: Final = 20
LARGEST_INTEGER: Final = 2**63 - 1
LONGEST_INTEGER: Final = 100

Place: TypeAlias = tuple[str | int, ...]
Position: TypeAlias = tuple[int, int]

_NULL: Final = re.compile(r"null|Null|NULL|~|")
_BOOLEAN: Final = re.compile(r"(true|True|TRUE)|false|False|FALSE")
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASES: Final = {"0o": 8, "0x": 16}
_NOT_YAML: Final = yaml.reader.Reader.NON_PRINTABLE
_NO_TEXT: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True)
class Document:
    """One YAML document as plain data; ``positions`` are 1-based (line, column).

    A place is the path of keys and indices to a value: ``("memory", "every", 0)``.
    ``key_positions`` holds the same for the keys of mappings. What an alias stands for
    has the positions of the anchored text, the alias itself its own. ``issues`` are what had to be
    left out of the data, such as a key that was given before.
    """

    data: Any
    source: str
    positions: Mapping[Place, Position]
    key_positions: Mapping[Place, Position]
    issues: tuple[Issue, ...] = ()

    def where(self, place: Place, *, key: bool = False) -> str:
        """Return ``source:line:col path`` of a place; one without a position has its parent's."""
        known = place
        while known and known not in self.positions:
            known = known[:-1]
        chosen = self.key_positions if key and known in self.key_positions else self.positions
        line, column = chosen[known]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        return f"{self.source}:{line}:{column} {path.lstrip('.')}".rstrip()


def spec_in(folder: str | Path) -> Path | None:
    """Return the spec that a compiled folder holds, ``None`` where there is none."""
    inside = Path(folder) / "spec.yaml"
    return inside if inside.is_file() else None


def read_file(path: str | Path) -> Document:
    """Read a YAML file; its path is the source that messages name.

    Raises UsageError where there is no file to read, InvalidSpec where its text is no YAML; what
    had to be left out is in the document's ``issues``.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            inside = spec_in(path)
            hint = f"; it is a folder, whose spec is {inside}" if inside else ""
            raise UsageError(f"{path}: not a file{hint}")
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the path
        raise UsageError(f"{str(path)!r}: {error}") from error
    return _read(content, str(path))


def read_yaml(text: str | bytes, source: str) -> Document:
    """Read one YAML document; ``source`` names it in messages.

    Raises InvalidSpec, with everything that is wrong up to where reading had to stop.
    """
    document = _read(text, source)
    if document.issues:
        raise InvalidSpec(document.issues)
    return document


def _read(text: str | bytes, source: str) -> Document:
    """Read one YAML document and its issues; raise InvalidSpec where reading had to stop."""
    composer = _Composer(source, _clean(text, source))
    root = composer.document()
    positions: dict[Place, Position] = {}
    key_positions: dict[Place, Position] = {}
    data = _plain(root, (), positions, key_positions)
    return Document(data, source, positions, key_positions, tuple(composer.issues))


@dataclass(frozen=True)
class _Scalar:
    at: Position
    value: str | int | float | bool | None
    size: int = 1
    height: int = 1


@dataclass(frozen=True)
class _Collection:
    """A sequence, or a mapping where there are keys; size and height with aliases expanded."""

    at: Position
    keys: tuple[_Scalar, ...] | None
    values: tuple[_Node, ...]
    size: int
    height: int


_Node: TypeAlias = _Scalar | _Collection


def _plain(
    node: _Node, place: Place, positions: dict[Place, Position], keys: dict[Place, Position]
) -> Any:
    """Convert a node to plain data, and note the positions of its values and keys on the way."""
    positions[place] = node.at
    if isinstance(node, _Scalar):
        return node.value
    if node.keys is None:
        return [_plain(v, (*place, i), positions, keys) for i, v in enumerate(node.values)]
    data = {}
    for key, value in zip(node.keys, node.values, strict=True):
        name = str(key.value)
        keys[*place, name] = key.at
        data[name] = _plain(value, (*place, name), positions, keys)
    return data


class _Composer:
    """Events to nodes; notes what is wrong in ``issues``, and stops where it cannot go on."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self.loader = yaml.SafeLoader(text)
        self.issues: list[Issue] = []
        self.anchors: dict[str, _Node] = {}
        self.aliases = 0
        self.nodes = 0
        self.at: Position = (1, 1)

    def report(self, at: Position, message: str, read: str | None = None, hint: str = "") -> None:
        self.issues.append(_issue(self.source, at, message, read, hint))
        if len(self.issues) == MOST_ISSUES:
            raise InvalidSpec(self.issues)

    def stop(self, at: Position, message: str, read: str | None = None, hint: str = "") -> NoReturn:
        self.report(at, message, read, hint)
        raise InvalidSpec(self.issues)

    def next(self) -> events.Event:
        """Return the parser's next event; ``at`` is where it starts."""
        try:
            event: events.Event = self.loader.get_event()  # type: ignore[no-untyped-call]
        except yaml.MarkedYAMLError as error:
            problem, hint = _explain(error.problem or "not YAML")
            self.stop(_position(error.problem_mark) or self.at, problem, hint=hint)
        except (ValueError, OverflowError):  # "\UFFFFFFFF", a %YAML of 5,000 digits
            at = _position(self.loader.get_mark()) or self.at
            self.stop(at, "an escape or a directive with an impossible number")
        self.at = _position(event.start_mark) or self.at
        return event

    def document(self) -> _Node:
        """Return the root of the one document; an empty text is null."""
        self.next()
        if isinstance(self.next(), events.StreamEndEvent):
            return _Scalar((1, 1), None)
        root = self.node(self.next(), 1)
        self.next()
        if not isinstance(self.next(), events.StreamEndEvent):
            self.stop(self.at, "a second document", hint="one file holds one")
        return root

    def node(self, event: events.Event, depth: int) -> _Node:
        if isinstance(event, events.AliasEvent):
            return self.alias(event, depth)
        assert isinstance(event, events.ScalarEvent | events.CollectionStartEvent)
        at = self.at
        self.spend(1, depth)
        if event.tag is not None:
            self.report(at, "tags are not allowed", event.tag)
        node: _Node
        match event:
            case events.ScalarEvent():
                node = _Scalar(at, self.scalar(event.value, at, plain=event.style is None))
            case events.SequenceStartEvent():
                node = self.sequence(at, depth)
            case _:
                node = self.mapping(at, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def alias(self, event: events.AliasEvent, depth: int) -> _Node:
        """Return what the alias stands for, at the alias's own position."""
        self.aliases += 1
        if self.aliases > MOST_ALIASES:
            self.stop(self.at, f"more than {MOST_ALIASES} aliases")
        node = self.anchors.get(event.anchor or "")
        if node is None:
            self.stop(self.at, "an alias without an anchor that ends before it", event.anchor)
        self.spend(node.size, depth + node.height - 1)
        return replace(node, at=self.at)

    def spend(self, nodes: int, depth: int) -> None:
        """Count nodes against the caps; stop where there are too many or they lie too deep."""
        self.nodes += nodes
        if self.nodes > MOST_NODES:
            self.stop(self.at, f"more than {MOST_NODES} values, aliases expanded")
        if depth > DEEPEST:
            self.stop(self.at, f"nested more than {DEEPEST} deep")

    def sequence(self, at: Position, depth: int) -> _Collection:
        values = []
        while not isinstance(event := self.next(), events.SequenceEndEvent):
            values.append(self.node(event, depth + 1))
        return _collection(at, None, values)

    def mapping(self, at: Position, depth: int) -> _Collection:
        keys: dict[str, _Scalar] = {}
        values = []
        while not isinstance(event := self.next(), events.MappingEndEvent):
            word, merge = None, False
            if isinstance(event, events.ScalarEvent):
                word, merge = event.value, event.value == "<<" and event.style is None
            key = self.node(event, depth + 1)
            value = self.node(self.next(), depth + 1)
            if merge:
                self.report(key.at, "merge keys are not allowed", "<<", "write the keys out")
            elif not isinstance(key, _Scalar) or not isinstance(key.value, str):
                self.report(key.at, "a key must be a string", word, "quote it")
            elif key.value in keys:
                line, column = keys[key.value].at
                self.report(key.at, "a key given twice", key.value, f"first at {line}:{column}")
            else:
                keys[key.value] = key
                values.append(value)
        return _collection(at, tuple(keys.values()), values)

    def scalar(self, text: str, at: Position, plain: bool) -> str | int | float | bool | None:
        """Return the value of a scalar by YAML 1.2's core schema."""
        if found := _NO_TEXT.search(text):
            hint = _ESCAPED if found[0] in "\a\b\v\f\x1b" else ""
            self.report(at, "a control character or half a surrogate pair", text, hint)
        if not plain:
            return text
        if _NULL.fullmatch(text):
            return None
        if boolean := _BOOLEAN.fullmatch(text):
            return boolean[1] is not None
        if _NOT_FINITE.fullmatch(text):
            return float(text.replace(".", "", 1))
        if _INTEGER.fullmatch(text):
            return self.integer(text, at)
        return self.real(text, at) if _FLOAT.fullmatch(text) else text

    def integer(self, text: str, at: Position) -> int:
        value = int(text, _BASES.get(text[:2], 10)) if len(text) <= LONGEST_INTEGER else math.inf
        if abs(value) > LARGEST_INTEGER:
            self.report(at, "an integer of more than 64 bits", text)
            return 0
        return int(value)

    def real(self, text: str, at: Position) -> float:
        value = float(text)
        if math.isinf(value):
            self.report(at, "a number too large for a float", text, "infinity is .inf")
        return value


_ESCAPED: Final = "in double quotes a backslash begins an escape: write single ones"
"""What to do about ``"\\frac"`` and ``"\\beta"``."""

_WORDS: Final = {
    "'<stream end>'": "the end of the text", "'<scalar>'": "a text",
    "<block end>": "the end of an indented part", "'<block mapping start>'": "a new mapping",
    "'<block sequence start>'": "a new list", "<document start>": "the end of the document",
    "unexpected end of stream": "the end of the text where a quote is to close",
}  # fmt: skip
"""What PyYAML calls its tokens, and what a reader sees there."""

_HINTS: Final = {
    r"'\t'": "indent with spaces",
    "mapping values are not allowed here": (
        "keys of one mapping begin in one column; a text with ': ' in it is quoted"
    ),
    "could not find expected ':'": "a key ends in ': '; lines of one mapping begin in one column",
    "end of an indented part": "lines of one mapping or list begin in one column",
    "cannot start any token": "quote a text that begins so",
}
"""What to do, by a part of what is told."""


def _explain(problem: str) -> tuple[str, str]:
    """Rephrase PyYAML's message in words of the text, with a remedy.

    >>> _explain("expected <block end>, but found '<scalar>'")[0]
    'expected the end of an indented part, but found a text'
    """
    for theirs, ours in _WORDS.items():
        problem = problem.replace(theirs, ours)
    hints = (hint for part, hint in _HINTS.items() if part in problem)
    return problem, next(hints, "")


def _collection(at: Position, keys: tuple[_Scalar, ...] | None, values: list[_Node]) -> _Collection:
    size = 1 + len(keys or ()) + sum(value.size for value in values)
    height = 1 + max((value.height for value in values), default=0)
    return _Collection(at, keys, tuple(values), size, height)


def _clean(text: str | bytes, source: str) -> str:
    """Decode the text, drop a byte order mark, and refuse what is too large or no YAML text."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > MOST_BYTES:
        raise InvalidSpec([_issue(source, (1, 1), f"larger than {MOST_BYTES // 1024} KiB")])
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        at = _end(raw[: error.start].decode("utf-8"))
        message = f"not UTF-8: byte {raw[error.start]:#04x}"
        hint = "save the file as UTF-8"
        raise InvalidSpec([_issue(source, at, message, hint=hint)]) from error
    if found := _NOT_YAML.search(text):
        at = _end(text[: found.start()])
        raise InvalidSpec([_issue(source, at, "a control character", found[0])])
    return text


def _issue(
    source: str, at: Position, message: str, read: str | None = None, hint: str = ""
) -> Issue:
    return Issue(message, f"{source}:{at[0]}:{at[1]}", read, hint=hint or None)


def _position(mark: Any) -> Position | None:
    """Convert PyYAML's mark, which counts from zero, to a position; None stays None."""
    return None if mark is None else (mark.line + 1, mark.column + 1)


def _end(text: str) -> Position:
    """Return the position just after the text."""
    lines = f"{text}.".splitlines()
    return len(lines), len(lines[-1])
