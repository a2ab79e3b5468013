"""``extends``: a spec as its base with changes.

- The base is the name of a packaged spec, or a path (it ends in .yaml or .yml, or has a
  separator) relative to the file that names it; relative to the working directory from a mapping.
- Mappings merge key by key. A bare word or a list replaces what the base has, and so does a
  mapping of another ``kind`` or ``method``, or of another origin where it is a coefficient
  (``value``, ``expr``, ``from``). The base's short forms are written out before the merge:
  ``bias: {delta: 2}`` over ``bias: huber`` is ``{kind: huber, delta: 2}``.
- Entries that identify a spec are not inherited: ``name``, ``title``, ``source``, ``published``
  and ``notes`` are never taken from a base.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from mnemic.dsl.catalogue import find
from mnemic.dsl.coefficients import Coefficient
from mnemic.dsl.documents import Layers
from mnemic.dsl.keys import Key
from mnemic.dsl.reading import Document, read_file
from mnemic.dsl.shape import Shape
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, Issue, UsageError

DEEPEST_BASE: Final = 8
OWN: Final = ("name", "title", "source", "published", "notes")
_TELLS_KIND: Final = ("kind", "method")
_ORIGINS: Final = ("value", "expr", "from", "own")


def is_path(text: str) -> bool:
    """Return whether a text is a path rather than a spec's name."""
    return text.endswith((".yaml", ".yml")) or "/" in text or "\\" in text


def stack(document: Document) -> Layers:
    """Return the document and its bases. Raises InvalidSpec for a base that cannot be used."""
    layers, wrong = climb(document)
    if wrong:
        raise InvalidSpec(wrong)
    return layers


def climb(document: Document) -> tuple[Layers, tuple[Issue, ...]]:
    """Return the document and its bases as far as they can be used, and the issues of the first
    that cannot, or of parts that had to be left out."""
    documents, wrong = [document], [*document.issues]
    while isinstance(documents[-1].data, dict) and "extends" in documents[-1].data:
        try:
            documents.append(_next(documents))
        except InvalidSpec as error:
            wrong += error.issues
            break
        wrong += documents[-1].issues
    return Layers(tuple(documents)), tuple(wrong)


def is_missing(issue: Issue) -> bool:
    """Return whether an issue means that data of another document is missing."""
    return issue.read == "<<" or issue.where.endswith("extends")


def _next(documents: Sequence[Document]) -> Document:
    """Read the base of the last document. Raises InvalidSpec for a circle or too many bases."""
    last = documents[-1]
    path = _base(last)
    if str(path.resolve()) in map(_identity, documents):
        _refuse(last, "a spec cannot extend itself, by way of others either")
    if len(documents) > DEEPEST_BASE:
        _refuse(last, f"more than {DEEPEST_BASE} bases, one on another")
    return _read(last, path)


def merged(layers: Layers) -> Any:
    """Return the data of all layers as one, without ``extends``."""
    data = layers.documents[-1].data
    for document in reversed(layers.documents[:-1]):
        data = merge(_without(data, OWN), document.data, Shape(Spec))
    return _without(data, ("extends",)) if isinstance(data, dict) else data


def merge(base: Any, child: Any, shape: Shape) -> Any:
    """Merge ``child`` over ``base``, both of one shape, and return the result."""
    if not isinstance(child, dict):
        return child
    full, change = shape.long(base), shape.kinded(child)
    if not isinstance(full, dict) or _differ(full, change, shape):
        return change
    kind = shape.of_kind(full.get("kind"))
    both = {k: merge(full[k], v, kind.at(k)) for k, v in change.items() if k in full}
    return {**full, **change, **both}


def _differ(base: Mapping[str, Any], child: Mapping[str, Any], shape: Shape) -> bool:
    """Return whether the child is of another kind, method or origin than the base."""
    for word in _TELLS_KIND:
        field = shape.fields().get(word)
        default = field.default if field else child.get(word)
        if word in child and child[word] != base.get(word, default):
            return True
    if shape.entry is None or not issubclass(shape.entry, Coefficient | Key):
        return False
    origins = {word for word in _ORIGINS if word in child}
    return bool(origins) and origins != {word for word in _ORIGINS if word in base}


def _without(data: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k not in keys}


def _base(document: Document) -> Path:
    """Return the path of the base that a document names. Raises InvalidSpec where none is found."""
    name = document.data["extends"]
    if not isinstance(name, str) or not name:
        _refuse(document, "must be the name of a packaged spec or a path")
    if is_path(name):
        return Path(document.source).parent / name
    try:
        return find(name)
    except UsageError as error:
        _refuse(document, str(error))


def _read(child: Document, path: Path) -> Document:
    try:
        base = read_file(path)
    except UsageError as error:
        _refuse(child, f"cannot read the base: {error}")
    if not isinstance(base.data, dict):
        _refuse(child, f"the base is not a mapping: {path}")
    return base


def _identity(document: Document) -> str:
    return str(Path(document.source).resolve()) if document.source else ""


def _refuse(document: Document, message: str) -> NoReturn:
    place = ("extends",)
    raise InvalidSpec([Issue(message, Layers((document,)).where(place))])
