"""Choices in a spec, ``{choose: [...]}`` and ``{range: [low, high]}``, and the tree of them.

A choice may replace any value of a spec. A choice inside an option of ``choose`` is made only if
that option is taken, so it is conditional on the choices around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from mnemic.dsl.documents import Layers, dotted
from mnemic.dsl.reading import Document, Place
from mnemic.errors import Issue, nearest

CHOOSE: Final = ("choose",)
RANGE: Final = ("range", "log", "step")
KEPT: Final = frozenset({"mnemic", "name", "title", "source", "notes", "published"})
"""What tells which space this is; nothing there can be chosen."""


LONGEST_LABEL: Final = 40


@dataclass(frozen=True)
class Plain:
    """A scalar of a space's spec, in which nothing is chosen."""

    value: Any
    place: Place


@dataclass(frozen=True)
class Branch:
    """A mapping or a list, its keys and values."""

    items: tuple[tuple[str | int, Node], ...]
    place: Place
    mapping: bool


@dataclass(frozen=True)
class Choose:
    """A choice of one of several values, each with its label."""

    options: tuple[Node, ...]
    labels: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class Range:
    """A choice of a number in [low, high]; of an integer where both ends are written so."""

    low: float
    high: float
    log: bool
    step: float | None
    place: Place

    @property
    def integral(self) -> bool:
        """Whether the range is one of integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def values(self) -> tuple[float, ...] | None:
        """Every value of the range, where they are finitely many; else None."""
        if self.integral:
            return tuple(range(int(self.low), int(self.high) + 1, int(self.step or 1)))
        if self.step is None:
            return None
        count = math.floor((self.high - self.low) / self.step + 1e-9)
        return tuple(self.low + i * self.step for i in range(count + 1))


Node: TypeAlias = Plain | Branch | Choose | Range
Choice: TypeAlias = Choose | Range
Answer: TypeAlias = str | int | float
Ask: TypeAlias = Callable[[str, Choice], Answer]
"""``ask(name, choice)``: a label of a `Choose`, or a number in a `Range`."""


@dataclass(frozen=True)
class Resolved:
    """Plain data with every choice made.

    ``places`` maps each place in the data to the place in the space where it was written.
    """

    data: Any
    places: Mapping[Place, Place]
    answers: Mapping[str, Answer]


def parse(document: Document, data: Mapping[str, Any]) -> tuple[Branch, list[Issue]]:
    """Parse a space's spec into a tree without choices that are empty or invalid; also return the
    issues of these."""
    reader = _Reader(document)
    root = reader.node(data, ())
    assert isinstance(root, Branch)
    return root, reader.issues


def resolve(node: Node, ask: Ask) -> Resolved:
    """Return the data of a tree, with the choices made by ``ask`` in the order of the text."""
    walk = _Walk(ask)
    return Resolved(walk.value(node, (), ""), walk.places, walk.answers)


def choices(node: Node) -> Iterator[tuple[str, Choice, dict[str, Answer]]]:
    """Yield every choice by name, with the answers to other choices on which it is conditional."""
    yield from _choices(node, (), "", {})


def count(node: Node) -> float:
    """Count the ways to choose; infinite where a range is continuous."""
    match node:
        case Plain():
            return 1
        case Branch(items=items):
            return math.prod(count(child) for _, child in items)
        case Choose(options=options):
            return sum(map(count, options))
        case Range(values=values):
            return math.inf if values is None else len(values)


class _Reader:
    """Reads data into nodes, and collects its issues."""

    def __init__(self, document: Document) -> None:
        self.layers = Layers((document,))
        self.issues: list[Issue] = []

    def node(self, data: Any, place: Place) -> Node | None:
        if isinstance(data, dict) and "choose" in data and len(place) > 0:
            return self.choose(data, place)
        if isinstance(data, dict) and "range" in data and place not in ((), ("coefficients",)):
            return self.range(data, place)
        if isinstance(data, dict):
            pairs = [(key, self.node(item, (*place, key))) for key, item in data.items()]
            return Branch(_there(pairs), place, True)
        if isinstance(data, list):
            items = [(i, self.node(item, (*place, i))) for i, item in enumerate(data)]
            return Branch(_there(items), place, False)
        return Plain(data, place)

    def choose(self, data: dict[str, Any], place: Place) -> Node | None:
        self.known(data, place, CHOOSE)
        given = data["choose"]
        here = (*place, "choose")
        if not isinstance(given, list) or not given:
            self.report("must be a list of at least one value", here, given)
            return None
        options = _there(
            (label, self.node(item, (*here, i)))
            for i, (label, item) in enumerate(zip(_labels(given), given, strict=True))
        )
        for i, item in enumerate(given):
            if any(item == other and type(item) is type(other) for other in given[:i]):
                self.report("given twice", (*here, i), item)
        if not options:
            return None
        labels, nodes = zip(*options, strict=True)
        return Choose(nodes, labels, place)

    def range(self, data: dict[str, Any], place: Place) -> Node | None:
        self.known(data, place, RANGE)
        ends, log, step = data["range"], data.get("log", False), data.get("step")
        here = (*place, "range")
        if not (isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends))):
            self.report("must be two numbers, [low, high]", here, ends)
        elif not ends[0] < ends[1]:
            self.report("the low end must be below the high end", here, ends)
        elif not isinstance(log, bool):
            self.report("must be true or false", (*place, "log"), log)
        elif log and ends[0] <= 0:
            self.report("a range with log must lie above 0", here, ends)
        elif step is not None and (log or not _is_number(step) or step <= 0):
            self.report("must be a number above 0, and goes without log", (*place, "step"), step)
        elif step is not None and not isinstance(step, int) and isinstance(sum(ends), int):
            self.report("a range of integers has an integer step", (*place, "step"), step)
        else:
            return Range(ends[0], ends[1], log, step, place)
        return None

    def known(self, data: dict[str, Any], place: Place, allowed: tuple[str, ...]) -> None:
        if place[0] in KEPT:
            self.report("no choice is allowed here: this entry tells spaces apart", place, None)
        for key in data:
            if key not in allowed:
                where = self.layers.where((*place, key), key=True)
                near = nearest(key, allowed)
                self.issues.append(Issue("unknown key", where, key, allowed, near))

    def report(self, message: str, place: Place, read: Any) -> None:
        shown = None if read is None else _flow(read)
        self.issues.append(Issue(message, self.layers.where(place), shown))


Step = TypeVar("Step", bound=str | int)


def _there(nodes: Iterable[tuple[Step, Node | None]]) -> tuple[tuple[Step, Node], ...]:
    """Drop the nodes that are None, which could not be read."""
    return tuple((step, node) for step, node in nodes if node is not None)


class _Walk:
    """One resolution of a tree of choices: data, places and answers."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.places: dict[Place, Place] = {}
        self.answers: dict[str, Answer] = {}

    def value(self, node: Node, place: Place, context: str) -> Any:
        """Return the data of a node; ``context`` names the options taken around it."""
        self.places[place] = node.place
        match node:
            case Plain(value=value):
                return value
            case Branch(items=items, mapping=mapping):
                pairs = [(k, self.value(child, (*place, k), context)) for k, child in items]
                return dict(pairs) if mapping else [value for _, value in pairs]
            case Range():
                return self.answered(_named(place, context), node)
            case Choose(options=options, labels=labels):
                name = _named(place, context)
                label = str(self.answered(name, node))
                within = f"{name}={label}|{dotted(place)}"
                return self.value(options[labels.index(label)], place, within)

    def answered(self, name: str, choice: Choice) -> Answer:
        self.answers[name] = answer = self.ask(name, choice)
        return answer


def _choices(
    node: Node, place: Place, context: str, given: dict[str, Answer]
) -> Iterator[tuple[str, Choice, dict[str, Answer]]]:
    match node:
        case Branch(items=items):
            for key, child in items:
                yield from _choices(child, (*place, key), context, given)
        case Range():
            yield _named(place, context), node, given
        case Choose(options=options, labels=labels):
            name = _named(place, context)
            yield name, node, given
            for label, option in zip(labels, options, strict=True):
                within = f"{name}={label}|{dotted(place)}"
                yield from _choices(option, place, within, {**given, name: label})


def _named(place: Place, context: str) -> str:
    """Return a choice's name: ``bias``, and inside of an option ``bias=huber.delta``.

    ``context`` is the name of the option taken, and the place where it stands.
    """
    path = dotted(place)
    if not context:
        return path
    taken, _, at = context.rpartition("|")
    return taken + path.removeprefix(at)


def _labels(options: list[Any]) -> tuple[str, ...]:
    """Return a short word for each option, no two alike."""
    labels: list[str] = []
    for option in options:
        label, again = _label(option), 2
        while label in labels:
            label, again = f"{_label(option)}#{again}", again + 1
        labels.append(label)
    return tuple(labels)


def _label(option: Any) -> str:
    if isinstance(option, dict) and option:
        word = option.get("kind", option.get("method"))
        return word if isinstance(word, str) else _short(_flow(option))
    return _short(_flow(option))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def _flow(data: Any) -> str:
    """Write a value on one line as in a spec, leaving out choices inside it."""
    match data:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[data]
        case float():
            return f"{data:g}"
        case dict() if "choose" in data or "range" in data:
            return "?"
        case dict():
            return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in data.items()) + "}"
        case list():
            return "[" + ", ".join(map(_flow, data)) + "]"
    return str(data)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
