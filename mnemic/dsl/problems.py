"""Convert pydantic's errors to issues: the file and place, what was read, what is allowed."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic_core import ErrorDetails

from mnemic.dsl.axis import Entry
from mnemic.dsl.coefficients import WORDS, Coefficient
from mnemic.dsl.documents import Layers, dotted
from mnemic.dsl.homes import expressions_in, home, home_of_part, kinds_with
from mnemic.dsl.reading import Place
from mnemic.dsl.shape import Shape, follow
from mnemic.dsl.spec import Spec
from mnemic.errors import Issue, nearest

MOST: Final = 20
ALMOST: Final = 75.0
"""Of 100, how like a key has to be to one that is allowed here, to be taken for that at once."""
_NAME: Final = "must be words of a-z and 0-9 joined by hyphens, the first letter no digit"


def issues(errors: Iterable[ErrorDetails], layers: Layers, root: type[Entry] = Spec) -> list[Issue]:
    """Return one issue for each place that is wrong; ``root`` is the model."""
    found: dict[Place, Issue] = {}
    for error in errors:
        if _enough(error):
            continue
        place, shape = follow(Shape(root), error["loc"])
        if error["type"] == "extra_forbidden":
            shape = follow(Shape(root), error["loc"][:-1])[1]
        issue = _issue(error, place, shape, layers)
        if error["type"] == "extra_forbidden" and root is Spec:
            issue = _elsewhere(issue, str(place[-1]), dotted(place))
        found[place] = _either(found[place], issue) if place in found else issue
    return [*found.values()]


def _enough(error: ErrorDetails) -> bool:
    """Return whether a list is reported as too short only because a wrong item, which has its own
    error, was not counted."""
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


def given(errors: Iterable[ErrorDetails]) -> list[ErrorDetails]:
    """Return the errors of what is there, not those of fields that an unread base might have."""
    absent = ("missing", "union_tag_not_found")
    return [
        error
        for error in errors
        if error["type"] not in absent
        and not (error["type"] == "value_error" and isinstance(error["input"], Mapping))
    ]


def listed(issues: Iterable[Issue], layers: Layers) -> list[Issue]:
    """Return the first issues in the order of the text, and a last one that counts the rest."""
    found = sorted(issues, key=layers.order)
    left = len(found) - MOST
    return [*found[:MOST], Issue(f"and {left} more")] if left > 0 else found


def places(errors: Iterable[ErrorDetails]) -> Iterator[tuple[Place, ErrorDetails]]:
    """Yield each error with its place in the spec."""
    for error in errors:
        yield follow(Shape(Spec), error["loc"])[0], error


def _either(one: Issue, other: Issue) -> Issue:
    """Join the issues of two failed alternatives of one place into one.

    Words allowed beside numbers become part of the message: ``must be at least 1, or all``.
    """
    allowed = (*one.allowed, *other.allowed)
    messages = [issue.message for issue in (one, other) if issue.message]
    if allowed and messages:
        return Issue(f"{' or '.join(messages)}, or {' or '.join(allowed)}", one.where, one.read)
    message = " or ".join(messages)
    return Issue(message, one.where, one.read, allowed, nearest(one.read or "", allowed))


def _issue(error: ErrorDetails, place: Place, shape: Shape, layers: Layers) -> Issue:
    handler = _HANDLERS.get(error["type"], _other)
    return handler(error, place, shape, layers)


def _missing(error: ErrorDetails, place: Place, shape: Shape, layers: Layers) -> Issue:
    position, _, _ = layers.where(place[:-1]).partition(" ")
    path = ".".join(map(str, place))
    known = bool(layers.documents[0].positions)
    return Issue("is missing", f"{position} {path}" if known else path)


def _unknown_key(error: ErrorDetails, place: Place, shape: Shape, layers: Layers) -> Issue:
    allowed = tuple(shape.fields()) + (("extends",) if shape.entry is Spec else ())
    key = str(place[-1])
    return Issue("unknown key", layers.where(place, key=True), key, allowed, nearest(key, allowed))


def _elsewhere(issue: Issue, key: str, place: str) -> Issue:
    """Add to the issue of an unknown key where it belongs, as far as that is known: the kinds that
    have it here, how an expression is written here, a key of similar spelling, the top level, or
    another place."""
    kinds = kinds_with(place)
    if kinds:
        return replace(issue, nearest=None, hint=f"'{key}' is an option of {' and '.join(kinds)}")
    inside = expressions_in(place.rpartition(".")[0]) if key == "expr" else ()
    if inside:
        return replace(issue, hint=f"an expression is written {' or '.join(inside)}")
    close = nearest(key, issue.allowed, ALMOST)
    if close is None and home(key) == key:
        return replace(issue, nearest=None, hint=f"'{key}' stands at the top of a spec")
    return replace(issue, nearest=close or home(key) or issue.nearest or home_of_part(key))


def _unknown_kind(error: ErrorDetails, place: Place, shape: Shape, layers: Layers) -> Issue:
    assert shape.family is not None
    given, words = error["input"]["kind"], shape.family.words()
    near = nearest(given, words) if isinstance(given, str) else None
    where = layers.where((*place, "kind") if layers.written_out(place) else place)
    own = {kind.shorthand for kind in shape.family.registry.values()}
    written = "expr" in own and isinstance(given, str) and not re.fullmatch(r"[\w-]+", given)
    hint = f'an expression is written {{expr: "{given}"}}' if written else None
    return Issue("", where, _shown(given), words, near, hint)


def _no_kind(error: ErrorDetails, place: Place, shape: Shape, layers: Layers) -> Issue:
    """Return the issue of a mapping without a kind, whose key may be misspelt."""
    assert shape.family is not None
    if not isinstance(error["input"], Mapping):
        return _no_word(error, place, shape, layers)
    telling = {k.shorthand: k for k in shape.family.registry.values() if k.shorthand}
    keys = ("kind", *telling)
    pairs = ((key, nearest(key, keys)) for key in map(str, error["input"]))
    key, near = next((pair for pair in pairs if pair[1]), (None, None))
    if key is None:
        words = shape.family.words()
        word = next((key for key in map(str, error["input"]) if key in words), None)
        hint = None if word is None else f"a kind is told by its word: {{kind: {word}, ...}}"
        return Issue("a mapping without 'kind'", layers.where(place), None, words, hint=hint)
    return Issue("unknown key", layers.where((*place, key), key=True), key, keys, near)


def _no_word(error: ErrorDetails, place: Place, shape: Shape, layers: Layers) -> Issue:
    """Return the issue of a value that is neither a word nor a mapping where one is expected."""
    if not place and error["input"] is None:
        where = layers.where(place)
        return Issue("is empty; a spec has a name at least", where, hint="name: my-rule")
    words: tuple[str, ...] = ()
    message = "must be a mapping"
    if shape.family is not None:
        words, message = shape.family.words(), "must be a word or a mapping with 'kind'"
    elif shape.entry is not None and issubclass(shape.entry, Coefficient):
        words, message = tuple(WORDS), "must be a number, an expression, a word or a mapping"
    elif shape.short_forms:
        message = "must be a text or a mapping"
    return Issue(message, layers.where(place), _shown(error["input"]), words)


def _word(error: ErrorDetails, place: Place, shape: Shape, layers: Layers) -> Issue:
    expected = re.findall(r"'([^']*)'|(True|False)", error["ctx"]["expected"])
    allowed = tuple(word or flag.lower() for word, flag in expected)
    given = error["input"]
    near = nearest(given, allowed) if isinstance(given, str) else None
    return Issue("", layers.where(place), _shown(given), allowed, near)


def _name(error: ErrorDetails, place: Place, shape: Shape, layers: Layers) -> Issue:
    told = _NAME if place == ("name",) else message(error)
    return Issue(told, layers.where(place), _shown(error["input"]))


def _other(error: ErrorDetails, place: Place, shape: Shape, layers: Layers) -> Issue:
    given = error["input"]
    told = error["type"] in ("dict_type", "tuple_type") or not isinstance(
        given, Mapping | list | tuple
    )
    return Issue(message(error), layers.where(place), _shown(given) if told else None)


def message(error: ErrorDetails) -> str:
    """Rephrase pydantic's message."""
    text = error["msg"].removeprefix("Value error, ")
    for theirs, ours in _PLAIN.items():
        text = text.replace(theirs, ours)
    return re.sub(r"^\w+ should ", "must ", text)


_PLAIN: Final = {
    " after validation": "", "a valid dictionary": "a mapping", "a valid tuple": "a list",
    "a valid integer": "a whole number", "a valid number": "a number", "a valid string": "text",
    "a valid boolean": "true or false", "be greater than or equal to": "be at least",
    "be less than or equal to": "be at most", "be greater than": "be above",
    "be less than": "be below",
}  # fmt: skip
"""What pydantic says, in the words of the page of the language."""


def _shown(value: Any) -> str:
    """Return a value as messages quote it: null, true, ``a mapping``, ``a list``, or its text."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return str(value)


_HANDLERS: Final[Mapping[str, Callable[[ErrorDetails, Place, Shape, Layers], Issue]]] = {
    "missing": _missing,
    "extra_forbidden": _unknown_key,
    "union_tag_invalid": _unknown_kind,
    "union_tag_not_found": _no_kind,
    "model_attributes_type": _no_word,
    "model_type": _no_word,
    "literal_error": _word,
    "string_pattern_mismatch": _name,
}
