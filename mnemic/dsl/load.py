"""From a file, a mapping or a name to a checked spec."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mnemic.dsl import combinations, partial, problems
from mnemic.dsl.catalogue import find, names
from mnemic.dsl.documents import Layers, from_mapping, place_of
from mnemic.dsl.extends import climb, is_missing, is_path, merged, stack
from mnemic.dsl.reading import Document, read_file
from mnemic.dsl.rules.rule import Rule
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, Issue, UsageError, named_arguments

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]


@named_arguments
def load(source: Source, *, beside: Iterable[Rule] = ()) -> Spec:
    """Read a spec, resolve what it extends, and check it.

    ``source`` is a path (a text that ends in .yaml or .yml, has a separator, or names a file that
    exists), a mapping of plain data, or the name of a spec that comes with the package. ``beside``
    are further rules that the spec must satisfy besides those of the language.

    Raises InvalidSpec with every issue found in entries, in expressions, and in the combination of
    all that can be read, each at its place in its file and in the order of the text; UsageError
    where there is no such file or name.

    >>> load({"name": "mine", "bias": "l2", "optimizer": {"rate": "token"}}).bias.text
    'e**2/2'
    """
    return checked(read(source), beside=beside)


def checked(document: Document, *, beside: Iterable[Rule] = ()) -> Spec:
    """Return the spec of a document that was read before; raises as `load` does."""
    layers, wrong = climb(document)
    data, beside = merged(layers), tuple(beside)
    details: list[ErrorDetails] = []
    try:
        spec = Spec.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False)
    else:
        if not wrong:
            found = [*combinations.issues(spec), *(i for rule in beside for i in rule(spec))]
            if not found:
                return spec
            raise InvalidSpec(problems.listed(_placed(found, layers), layers))
    told = problems.given(details) if wrong else details
    based = not any(is_missing(issue) for issue in wrong)
    rest = partial.rest(data, details, whole=not wrong, based=based)
    others = rest.issues(beside) if rest else ()
    found = [*wrong, *problems.issues(told, layers), *_placed(others, layers)]
    raise InvalidSpec(problems.listed(found, layers))


def located(issues: Iterable[Issue], name: str, source: Source) -> InvalidSpec:
    """Convert the issues of a derivation to InvalidSpec, each at its place in the spec's text.

    ``where`` of an issue is the spec's ``name`` and a path into it, or either alone.
    """
    layers = stack(document_of(source))
    found = [replace(issue, where=_path(issue.where, name)) for issue in issues]
    return InvalidSpec(problems.listed(_placed(found, layers), layers))


def _path(where: str, name: str) -> str:
    first, _, rest = where.partition(" ")
    return rest if first == name else where


def _placed(issues: Iterable[Issue], layers: Layers) -> Iterator[Issue]:
    """Yield each issue with the position of its place in the text."""
    return (replace(issue, where=layers.where(place_of(issue.where))) for issue in issues)


def document_of(source: Source) -> Document:
    """Read a path, a mapping or a name as plain data with positions.

    Raises InvalidSpec where a part of a text has to be left out.
    """
    document = read(source)
    if document.issues:
        raise InvalidSpec(document.issues)
    return document


def read(source: Source) -> Document:
    """Read a path, a mapping or a name; return its data, and the issues of parts left out."""
    if isinstance(source, Mapping):
        return from_mapping(source)
    if not isinstance(source, str | os.PathLike):
        raise UsageError(f"a spec is a path, a mapping or a name, not {type(source).__name__}")
    text = os.fspath(source)
    if "\n" in text:
        told = "a spec is a path, a mapping or a name, not the text of a file"
        raise UsageError(f"{told}; yaml.safe_load makes a mapping of it")
    if not isinstance(source, str) or is_path(text) or _is_file(text) or _is_folder(text):
        return read_file(text)
    return read_file(find(text))


def _is_file(text: str) -> bool:
    return "\0" not in text and len(text) < 256 and Path(text).is_file()


def _is_folder(text: str) -> bool:
    """Return whether the name is that of a compiled folder here and of no packaged spec."""
    return text not in names() and _is_file(f"{text}/spec.yaml")
