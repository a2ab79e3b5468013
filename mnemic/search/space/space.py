"""A space: a spec with choices in it, and under ``search`` what to search it for.

```yaml
mnemic: 1
name: losses
bias: {choose: [dot, l2, {kind: huber, delta: {range: [0.1, 10], log: true}}]}
retention: {decay: {choose: [1, token]}, order: before}
optimizer: {rate: token}
search:
  tasks: {mqar: tiny}
```
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import rfc8785
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mnemic.dsl import partial, problems
from mnemic.dsl.documents import Layers, place_of
from mnemic.dsl.extends import climb, merged
from mnemic.dsl.hashing import canonical
from mnemic.dsl.load import Source, checked, read
from mnemic.dsl.reading import Document
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, Issue, nearest
from mnemic.search.space import named_files
from mnemic.search.space.choices import (
    KEPT,
    Answer,
    Ask,
    Branch,
    Choice,
    Choose,
    Range,
    Resolved,
    choices,
    count,
    parse,
    resolve,
)
from mnemic.search.space.contradictions import contradictions
from mnemic.search.space.settings import Settings, SpaceEntry


@dataclass(frozen=True)
class Point:
    """One way to make all choices, and the resulting spec."""

    answers: Mapping[str, Answer]
    spec: Spec


@dataclass(frozen=True)
class Space:
    """A space as read from its file.

    Args:
        name: of the space, and of the study of it.
        document: the text's data and positions.
        root: the spec's tree of choices.
        settings: the entry ``search``.
    """

    name: str
    document: Document
    root: Branch
    settings: Settings

    @cached_property
    def choices(self) -> dict[str, Choice]:
        """Every choice of the space, by its name."""
        return {name: choice for name, choice, _ in choices(self.root)}

    @property
    def size(self) -> float:
        """How many ways to choose the space has; infinite where a range is continuous."""
        return count(self.root)

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of everything that a stored trial depends on."""
        return sha256(rfc8785.dumps(canonical(self.identity))).hexdigest()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What a stored trial depends on, as plain data, with the digests of the files it names."""
        spec = {k: v for k, v in self.document.data.items() if k not in {*KEPT, "search"}}
        bases = named_files.of_bases(self.document, _bases(self)) if "extends" in spec else {}
        return {
            "spec": spec | ({"bases": bases} if bases else {}),
            "search": named_files.with_digests(self.settings),
        }

    def point(self, ask: Ask) -> Point:
        """Return the point that ``ask`` chooses.

        Raises:
            InvalidSpec: it is no valid spec; the places are those of the space's text.
        """
        found = resolve(self.root, ask)
        placed = self.placed(found)
        spec = checked(placed)
        if against := tuple(contradictions(spec)):
            places = Layers((placed,))
            raise InvalidSpec([replace(i, where=places.where(place_of(i.where))) for i in against])
        return Point(found.answers, spec)

    def placed(self, found: Resolved) -> Document:
        """Return a resolved tree as a document whose positions are those of the space's text."""
        return _placed(self.document, found)


def _placed(document: Document, found: Resolved) -> Document:
    values = {here: document.positions.get(there) for here, there in found.places.items()}
    keys = {here: document.key_positions.get(there) for here, there in found.places.items()}
    return replace(
        document,
        data=found.data,
        positions={here: at for here, at in values.items() if at is not None},
        key_positions={here: at for here, at in keys.items() if at is not None},
    )


def differing(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return the entries in which two identities of spaces differ, as ``search.rungs``."""
    return [
        f"{part}.{key}"
        for part in ("spec", "search")
        for key in {**theirs[part], **ours[part]}
        if theirs[part].get(key) != ours[part].get(key)
    ]


def load_space(source: Source | os.PathLike[str]) -> Space:
    """Read a space and check all of it that can be checked without sampling.

    Raises:
        InvalidSpec: everything that is wrong, each at its place.
        UsageError: there is no such file.
    """
    document = read(source)
    if not isinstance(document.data, dict):
        raise InvalidSpec([Issue("a space is a mapping", document.source)])
    if "search" not in document.data:
        message = "no entry 'search': a space says what to search for"
        others = {str(key) for key in document.data} - set(Spec.model_fields)
        near = nearest("search", others)
        hint = f"is {near!r} meant for it?" if near else "a spec goes without one"
        raise InvalidSpec([Issue(message, document.source, hint=hint)])
    spec = {key: value for key, value in document.data.items() if key != "search"}
    root, against = parse(document, spec)
    wrong = [*document.issues, *against]
    wrong += _structure(document, root, whole=not wrong)
    settings = _settings(document, wrong)
    if settings is not None:
        space = Space(str(spec.get("name", "")), document, root, settings)
        wrong += _of_tasks(space)
        if not wrong:
            return space
    raise InvalidSpec(problems.listed(wrong, Layers((document,))))


def _settings(document: Document, wrong: list[Issue]) -> Settings | None:
    """Read what stands under ``search``; None if invalid, with its issues added to ``wrong``."""
    data = {"search": document.data["search"]}
    try:
        return SpaceEntry.model_validate(data, by_alias=True, by_name=False).search
    except ValidationError as error:
        details = error.errors(include_url=False)
        wrong += problems.issues(details, Layers((document,)), SpaceEntry)
    return None


def _structure(document: Document, root: Branch, whole: bool) -> list[Issue]:
    """List the issues of each option by itself, whatever the others are.

    Without ``whole`` some part could not be read, and entries that it may have are not required.
    """
    found: dict[tuple[str, str], Issue] = {}
    for given in _one_by_one(root):
        layers, against = climb(_placed(replace(document, issues=()), resolve(root, _first(given))))
        for issue in (*against, *_of_spec(layers, whole=whole and not against)):
            found.setdefault((issue.where, issue.message), issue)
    return list(found.values())


def _bases(space: Space) -> Iterator[Document]:
    """Yield the bases of every option, and their bases, as far as they can be read."""
    for given in _one_by_one(space.root):
        layers, _ = climb(_placed(space.document, resolve(space.root, _first(given))))
        yield from layers.documents[1:]


def _one_by_one(root: Branch) -> Iterator[dict[str, Answer]]:
    """Yield answers under which each option, and each end of a range, is taken at least once."""
    yield {}
    for name, choice, given in choices(root):
        ends = choice.labels if isinstance(choice, Choose) else (choice.low, choice.high)
        for answer in ends:
            yield {**given, name: answer}


def _first(given: Mapping[str, Answer]) -> Ask:
    """Return a function that gives a choice its known answer, or its first option or low end."""

    def ask(name: str, choice: Choice) -> Answer:
        plain = choice.low if isinstance(choice, Range) else choice.labels[0]
        return given.get(name, plain)

    return ask


def _of_spec(layers: Layers, whole: bool) -> Iterator[Issue]:
    """Yield the issues of entries and expressions that hold whatever the rest of the spec is.

    Without ``whole`` some part could not be read, and entries that it may have are not required.
    """
    details: list[ErrorDetails] = []
    data = merged(layers)
    try:
        Spec.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False)
        ours = [e for e in details if e["type"] != "value_error"]
        yield from problems.issues(ours if whole else problems.given(ours), layers)
    for issue in partial.certain(data, details):
        yield replace(issue, where=layers.where(place_of(issue.where)))


def _of_tasks(space: Space) -> list[Issue]:
    from mnemic.search.space.checks import issues

    return issues(space)
