"""What the models expect at each place of a spec, read off their annotations."""

from dataclasses import dataclass
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from mnemic.dsl.axis import Entry, Family
from mnemic.dsl.reading import Place


@dataclass(frozen=True)
class Shape:
    """One place: its type as annotated, and the functions that write its short forms out."""

    annotation: Any = None
    short_forms: tuple[BeforeValidator, ...] = ()

    @cached_property
    def plain(self) -> "Shape":
        """The shape without ``Annotated``; of alternatives the first that holds something."""
        origin, arguments = get_origin(self.annotation), get_args(self.annotation)
        if origin is Annotated:
            inner = (*self.short_forms, *_short_forms(arguments[1:]))
            return Shape(arguments[0], inner).plain
        if origin in (Union, UnionType):
            choices = (Shape(a, self.short_forms).plain for a in arguments)
            return next((c for c in choices if c.entry or c.item), Shape())
        return self

    @property
    def entry(self) -> type[Entry] | None:
        """The model of a mapping, where one belongs here."""
        here = self.annotation
        return here if isinstance(here, type) and issubclass(here, Entry) else None

    @property
    def family(self) -> type[Family] | None:
        """The family, where one of several kinds belongs here."""
        here = self.entry
        return here if here and issubclass(here, Family) and here.is_root() else None

    @property
    def item(self) -> "Shape | None":
        """The shape of every item of a list or of a mapping with free keys."""
        if get_origin(self.annotation) not in (tuple, dict):
            return None
        arguments = [a for a in get_args(self.annotation) if a is not Ellipsis]
        return Shape(arguments[-1]).plain

    def fields(self) -> dict[str, FieldInfo]:
        """Return the fields of the mapping, by the names that a spec uses."""
        if self.entry is None or self.family is not None:
            return {}
        return {field.alias or name: field for name, field in self.entry.model_fields.items()}

    def long(self, data: Any) -> Any:
        """Return a short form written out in full."""
        if self.entry is None:
            return data
        for form in self.short_forms:
            data = form.func(data)  # type: ignore[call-arg]
        return self.kinded(data)

    def kinded(self, data: Any) -> Any:
        """Return a mapping with its kind, where one of its keys tells it."""
        return self.family.expand(data) if self.family else data

    def of_kind(self, word: object) -> "Shape":
        """Return the shape of one kind of the family."""
        kind = self.family.registry.get(word) if self.family and isinstance(word, str) else None
        return Shape(kind) if kind else self

    def holds(self, step: str | int) -> bool:
        """Return whether a step leads inside: a number into a list, a name into a mapping."""
        if self.entry is not None:
            return True
        return self.item is not None and isinstance(step, str) == (
            get_origin(self.annotation) is dict
        )

    def at(self, step: str | int) -> "Shape":
        """Return the shape of a field or an item."""
        field = self.fields().get(step) if isinstance(step, str) else None
        if field is not None:
            return Shape(field.annotation, _short_forms(field.metadata)).plain
        return self.item or Shape()


def follow(shape: Shape, loc: Place) -> tuple[Place, Shape]:
    """Return pydantic's ``loc`` as a place in the spec, without the names of union members."""
    place: list[str | int] = []
    for step in loc:
        kind = shape.of_kind(step)
        if kind is not shape:
            shape = kind
        elif shape.holds(step):
            place.append(step)
            shape = shape.at(step)
    return tuple(place), shape


def _short_forms(metadata: Any) -> tuple[BeforeValidator, ...]:
    return tuple(m for m in metadata if isinstance(m, BeforeValidator))
