"""Find further issues in a spec with mistakes, as far as they do not depend on these.

The parts that the models refuse are left out, and so is everything that depends on them. Every rule
is applied to the rest. A rule that reads a field whose value is not known has no result
(``Unread``).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mnemic.dsl import combinations
from mnemic.dsl.axis import Entry, Family, Unread
from mnemic.dsl.coefficients import Coefficient
from mnemic.dsl.documents import place_of
from mnemic.dsl.keys import Key
from mnemic.dsl.problems import places
from mnemic.dsl.reading import Place
from mnemic.dsl.rules import coefficients, expressions
from mnemic.dsl.rules.rule import Rule
from mnemic.dsl.shape import Shape, follow
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import unknown_symbol
from mnemic.errors import Issue, nearest

ROUNDS: Final = 6
"""How often what is wrong is left out, before the rest is not looked at."""

_UNNAMED: Final = "unnamed"
_NUMBERED: Final = re.compile(r"(a|scale)\d+")
_RENAMED: Final[Mapping[Place, Collection[str]]] = {
    ("optimizer", "method"): {"delta", "beta2"},
    ("retention", "global"): {"lam"},
}
"""Coefficients that are there or not by what stands elsewhere, or are not called as their field."""


ANY: Final = frozenset[Place]((name,) for name in Spec.model_fields)

OF_TEXTS: Final[tuple[Rule, ...]] = (*expressions.RULES, coefficients.identifiers)
"""Rules that look at one text at a time, whatever stands elsewhere."""


@dataclass(frozen=True)
class Partial:
    """A spec in which the values of some places are not known.

    At these places ``filled`` has defaults, and ``known`` raises Unread. ``gone`` are the places
    that are wrong, ``hidden`` those that may hold coefficients that could not be read. ``own`` are
    the coefficients that the text declares, rightly or not; ``None`` where that is not known.
    """

    filled: Spec
    known: Spec
    gone: frozenset[Place]
    hidden: frozenset[Place]
    own: frozenset[str] | None

    def issues(self, rules: Iterable[Rule] = ()) -> Iterator[Issue]:
        """Yield the issues that remain whatever the unknown values should be."""
        for issue in (i for rule in OF_TEXTS for i in rule(self.filled)):
            if not (unknown_symbol(issue) and self.might_be(str(issue.read))):
                yield from self.outside(issue)
        for rule in (*combinations.RULES, *rules):
            if rule not in OF_TEXTS:
                yield from self._answers(rule)

    def _answers(self, rule: Rule) -> Iterator[Issue]:
        try:
            for issue in rule(self.known):
                yield from self.outside(issue)
        except Unread:
            return

    def outside(self, issue: Issue) -> Iterator[Issue]:
        """Yield the issue, unless its place is one that is not known."""
        place = place_of(issue.where)
        if not any(place[: len(gone)] == gone for gone in self.gone):
            yield issue

    def might_be(self, name: str) -> bool:
        """Return whether a name may belong to a coefficient that could not be read."""
        if self.own is None or name in self.own:
            return True
        return any(name in _names_at(gone) or _numbered(name, gone) for gone in self.hidden)


def rest(
    data: Any, wrong: Iterable[ErrorDetails], *, whole: bool = True, based: bool = True
) -> Partial | None:
    """Return the spec without its wrong parts; ``None`` where nothing is left to check.

    If the data is not the ``whole`` text, only the given fields are known. If a base is missing
    (not ``based``), the spec may also have any coefficients.
    """
    left, gone = deepcopy(data), set[Place]()
    if not isinstance(left, dict):
        return None
    for _ in range(ROUNDS):
        for place, error in places(wrong):
            if not place:
                return None
            gone |= _left_out(left, place, error)
        try:
            filled = Spec.model_validate(left, by_alias=True, by_name=False)
        except ValidationError as error:
            wrong = error.errors(include_url=False)
            continue
        known = filled if whole else _given(filled)
        for place in gone:
            known = _without(known, place)
        own = _own(data, gone) if based else None
        return Partial(filled, known, frozenset(gone), frozenset(gone if whole else ANY), own)
    return None


def certain(data: Any, wrong: Iterable[ErrorDetails]) -> Iterator[Issue]:
    """Yield the issues of expressions that cannot be read, whatever the rest of the spec is."""
    found = rest(data, wrong)
    if found is None:
        return
    for issue in expressions.readable(found.filled):
        if not unknown_symbol(issue) or not replace(found, hidden=ANY).might_be(str(issue.read)):
            yield from found.outside(issue)


def _left_out(data: dict[str, Any], place: Place, error: ErrorDetails) -> set[Place]:
    """Remove the wrong parts from the data, or the short form or list around them; return the
    places that are then not known."""
    if error["type"] == "missing":
        if len(place) == 1:
            data[str(place[0])] = _UNNAMED
            return {place}
        place = place[:-1]
    inside: Any = data
    for depth, step in enumerate(place[:-1]):
        if not isinstance(inside.get(step), dict):
            place = place[: depth + 1]
            break
        inside = inside[step]
    inside.pop(place[-1], None)
    if error["type"] == "extra_forbidden":
        return {place, *_meant(place, error, inside)}
    return {place}


def _meant(place: Place, error: ErrorDetails, beside: Collection[str]) -> Iterator[Place]:
    """Yield the fields that an unknown key may stand for: the most similar one, else any of its
    entry that is not given ``beside`` it."""
    fields = follow(Shape(Spec), error["loc"][:-1])[1].fields()
    near = nearest(str(place[-1]), tuple(fields))
    others = [name for name in fields if name not in beside and len(place) > 1]
    yield from ((*place[:-1], name) for name in ([near] if near else others))


def _own(data: Mapping[str, Any], gone: Collection[Place]) -> frozenset[str] | None:
    given = data.get("coefficients", {})
    if ("coefficients",) in gone or not isinstance(given, dict):
        return None
    return frozenset(map(str, given))


def _names_at(gone: Place) -> frozenset[str]:
    """Return the names of coefficients that could stand at a place, or within it."""
    parts = {name: place_of(where) for name, where in Spec(name=_UNNAMED).all_coefficients()}
    named = {name for name, place in parts.items() if _meet(place, gone)}
    for place, more in _RENAMED.items():
        named |= {*more} if _meet(place, gone) else set()
    for family in (entry for entry in Entry.defined if issubclass(entry, Family)):
        if family.is_root() and _meet(_AXES.get(family.__name__, ("?",)), gone):
            named |= {name for kind in family.registry.values() for name in _scalars(kind)}
    return frozenset(named)


_AXES: Final[Mapping[str, Place]] = {
    "Bias": ("bias",),
    "Memory": ("memory",),
    "Global": ("retention", "global"),
    "Constraint": ("retention", "constraint"),
    "Weights": ("weights",),
}
"""The families whose kinds have coefficients, and where they stand."""


def _scalars(kind: type[Family]) -> Iterator[str]:
    """Yield the names of a kind's fields that are coefficients."""
    for name, field in kind.model_fields.items():
        entry = Shape(field.annotation).plain.entry
        if entry is not None and issubclass(entry, Coefficient):
            yield name


def _numbered(name: str, gone: Place) -> bool:
    """Return whether a name is that of a numbered coefficient of the place: a0, scale1."""
    places = {"a": ("features",), "scale": ("retention", "constraint")}
    match = _NUMBERED.fullmatch(name)
    return match is not None and _meet(places[match[1]], gone)


def _meet(one: Place, other: Place) -> bool:
    """Return whether one of two places is the other or within it."""
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _without(entry: Any, place: Place) -> Any:
    """Return a copy of an entry in which the value at a place is not known."""
    fields = {field.alias or name: name for name, field in type(entry).model_fields.items()}
    name = fields.get(str(place[0]))
    if name is None or not entry.knows(name):
        return entry
    left, inside = entry.model_copy(), entry.__dict__[name]
    if len(place) > 1 and isinstance(inside, Entry):
        left.__dict__[name] = _without(inside, place[1:])
    else:
        del left.__dict__[name]
    return left


def _given(entry: Any) -> Any:
    """Return a copy of an entry in which only the fields that were given are known."""
    if isinstance(entry, Coefficient | Key):
        return entry
    left = entry.model_copy()
    for name in type(entry).model_fields:
        value = entry.__dict__[name]
        if name == "kind":
            continue
        if name not in entry.model_fields_set or name == "coefficients":
            del left.__dict__[name]
        elif isinstance(value, Entry):
            left.__dict__[name] = _given(value)
    return left
