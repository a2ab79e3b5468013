"""The starting specs of a search that its space contains."""

from __future__ import annotations

from collections.abc import Iterator

from mnemic.dsl.catalogue import names
from mnemic.dsl.load import load
from mnemic.search.space.choices import Answer
from mnemic.search.space.known import answers_of
from mnemic.search.space.space import Space


def starts(space: Space) -> Iterator[tuple[str, dict[str, Answer]]]:
    """Yield the name and the answers of every spec of ``start`` that is a point of the space."""
    for name in started(space):
        found = answers_of(space, load(name))
        if found is not None:
            yield name, found


def started(space: Space) -> tuple[str, ...]:
    """Return the specs that ``start`` names; ``all`` stands for every packaged one."""
    given = space.settings.start
    every = names() if "all" in given else ()
    return (*every, *(name for name in given if name != "all" and name not in every))
