"""From a file, a mapping or a name to a checked spec."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mnemic.dsl import combinations, problems
from mnemic.dsl.catalogue import find
from mnemic.dsl.documents import Layers, from_mapping, place_of
from mnemic.dsl.extends import is_path, merged, stack
from mnemic.dsl.reading import Document, read_file
from mnemic.dsl.rules import expressions
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import unknown_symbol
from mnemic.errors import InvalidSpec, Issue, UsageError, named_arguments

ROUNDS: Final = 4
"""How often what is wrong is left out, before the rest is not looked at."""

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]


@named_arguments
def load(source: Source) -> Spec:
    """Read a spec, resolve what it extends, and check it.

    ``source`` is a path (a text that ends in .yaml or .yml, has a separator, or names a file that
    exists), a mapping of plain data, or the name of a spec that comes with the package.

    Raises InvalidSpec with every issue found, each at its place in the file it comes from: of all
    entries, and where those are right, of how they go together and of the names in expressions;
    UsageError where there is no such file or name.

    >>> load({"name": "mine", "bias": "l2", "optimizer": {"rate": "token"}}).bias.text
    'e**2/2'
    """
    return checked(document_of(source))


def checked(document: Document) -> Spec:
    """Return the spec of a document that was read before; raises as `load` does."""
    layers = stack(document)
    spec = _validated(merged(layers), layers)
    if found := combinations.issues(spec):
        raise InvalidSpec(_placed(found, layers))
    return spec


def located(issues: Iterable[Issue], name: str, source: Source) -> InvalidSpec:
    """Issues of a derived spec, each at its place in the text that it was read from.

    ``where`` of an issue is the spec's ``name`` and a path into it, or either alone.
    """
    layers = stack(document_of(source))
    found = [replace(issue, where=_path(issue.where, name)) for issue in issues]
    return InvalidSpec(_placed(found, layers))


def _path(where: str, name: str) -> str:
    first, _, rest = where.partition(" ")
    return rest if first == name else where


def _placed(issues: Iterable[Issue], layers: Layers) -> Iterator[Issue]:
    """The issues in the order of the text, each with its position."""
    for issue in sorted(issues, key=lambda issue: layers.order(place_of(issue.where))):
        yield replace(issue, where=layers.where(place_of(issue.where)))


def document_of(source: Source) -> Document:
    """Return what a path, a mapping or a name holds, as plain data with positions."""
    if isinstance(source, Mapping):
        return from_mapping(source)
    if not isinstance(source, str | os.PathLike):
        raise UsageError(f"a spec is a path, a mapping or a name, not {type(source).__name__}")
    text = os.fspath(source)
    if not isinstance(source, str) or is_path(text) or _is_file(text):
        return read_file(text)
    return read_file(find(text))


def _is_file(text: str) -> bool:
    return "\0" not in text and len(text) < 256 and Path(text).is_file()


def _validated(data: Any, layers: Layers) -> Spec:
    try:
        return Spec.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        found = [*problems.issues(wrong, layers), *_placed(_beside(wrong, data), layers)]
        raise InvalidSpec(found) from None


def _beside(wrong: list[ErrorDetails], data: Any) -> Iterator[Issue]:
    """What else makes no sense in the expressions, once what the models refuse is left out."""
    gone = [place for place, _ in problems.places(wrong)]
    whole = all(error["type"] == "extra_forbidden" for error in wrong)
    spec = _without(wrong, data)
    if spec is None:
        return
    for issue in expressions.issues(spec):
        place = place_of(issue.where)
        inside = any(place[: len(other)] == other for other in gone)
        if not inside and (whole or not unknown_symbol(issue)):
            yield issue


def _without(wrong: list[ErrorDetails], data: Any) -> Spec | None:
    """The spec without what is wrong, and without what is wrong then; ``None`` where a part that
    must be there is missing."""
    for _ in range(ROUNDS):
        data = problems.without(data, wrong)
        try:
            return Spec.model_validate(data, by_alias=True, by_name=False)
        except ValidationError as error:
            wrong = error.errors(include_url=False)
    return None
