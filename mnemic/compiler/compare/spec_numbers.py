"""Numbers of a spec as if they were parameters: powers, penalties and degrees."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from pydantic import BaseModel

from mnemic.dsl.coefficients import Coefficient
from mnemic.dsl.spec import Spec

AXES = ("features", "bias", "retention")
"""Where a number is part of the rule. Those of the optimizer have edits of their own."""
VALUES = (0, 1, 2)
"""At which powers, penalties and degrees become plainer."""
Edits = tuple[str, ...]


def edits_of(spec: Spec) -> Iterator[Edits]:
    """Return edits that put one number of a spec, or two at once, at each of `VALUES`.

    An edit is a path and a number: ``bias.p=2``.
    """
    places = [(path, held) for axis in AXES for path, held in _numbers(axis, getattr(spec, axis))]
    for path, held in places:
        yield from ((f"{path}={value}",) for value in VALUES if value != held)
    for (one, _), (other, _) in combinations(places, 2):
        for value in VALUES:
            yield f"{one}={value}", f"{other}={value}"


def words_of(edits: Edits) -> tuple[str, ...]:
    """Return edits as one reads them.

    >>> words_of(("bias.p=2",))
    ('p = 2',)
    """
    pairs = (edit.rsplit("=", 1) for edit in edits)
    return tuple(f"{path.rsplit('.', 1)[-1]} = {value}" for path, value in pairs)


def put_number(spec: Spec, edit: str) -> Spec:
    """Return the spec with one number changed.

    Raises:
        ValidationError: it may not have that value.
    """
    path, value = edit.rsplit("=", 1)
    data: Any = spec.model_dump(by_alias=True, exclude_none=True)
    place = data
    *inner, last = path.split(".")
    for name in inner:
        place = place[name]
    place[last] = int(value)
    return Spec.model_validate(data)


def _numbers(path: str, entry: Any) -> Iterator[tuple[str, float]]:
    """The numbers of an entry that the spec tells, with their paths."""
    if not isinstance(entry, BaseModel):
        return
    for name, field in type(entry).model_fields.items():
        held, own = getattr(entry, name), f"{path}.{field.alias or name}"
        if isinstance(held, bool) or name not in entry.model_fields_set:
            continue
        if isinstance(held, int | float):
            yield own, held
        elif isinstance(held, Coefficient):
            if held.fixed:
                yield own, float(held.value or 0)
        else:
            yield from _numbers(own, held)
