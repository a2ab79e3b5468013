"""Numbers of a spec as if they were parameters: powers, penalties and degrees."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from mnemic.dsl.coefficients import Coefficient
from mnemic.dsl.spec import Spec

VALUES = (0, 1, 2)
"""At which powers, penalties and degrees become plainer."""
Edits = tuple[str, ...]


def words_of(edits: Edits) -> tuple[str, ...]:
    """Return edits in words.

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
    place[last] = float(value) if "." in value else int(value)
    return Spec.model_validate(data)


def numbers(path: str, entry: Any) -> Iterator[tuple[str, float]]:
    """Return the numbers of an entry that the spec tells, with their paths."""
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
            yield from numbers(own, held)
