"""The base of every entry of a spec: strict, closed, and open to new members of a family.

A *family* is an axis (or a part of one) with several kinds: a root class such as ``Bias`` and one
subclass for each kind. A subclass registers itself; validation, JSON Schema, documentation and
search spaces are read off the registry, so one new kind is one new class.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class Unread(Exception):
    """Raised by a field whose value is not known, because of a mistake (``mnemic.dsl.partial``)."""


class Entry(BaseModel):
    """A mapping of a spec: frozen, unknown keys forbidden, no silent conversions.

    A field that is not known raises Unread where it is asked for.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        populate_by_name=True,
        allow_inf_nan=True,
        defer_build=True,
    )
    defined: ClassVar[list[type["Entry"]]] = []

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        Entry.defined.append(cls)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                raise Unread(name)
            return super().__getattr__(name)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the fields that differ from their defaults, so that the rest is not in the way."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            field = fields.get(name or "")
            if field is None or field.is_required() or value != _default(field):
                yield name, value

    def knows(self, name: str) -> bool:
        """Return whether it is known what stands in a field."""
        return name in self.__dict__


def _default(field: FieldInfo) -> Any:
    """Return the default of an optional field."""
    return field.get_default(call_default_factory=True)


def refresh() -> None:
    """Let validation and JSON Schema see kinds that were defined after the spec's own model.

    A kind of a family is one class. One that is defined at run time, in a notebook or by a
    package that builds on this one, is registered at once, but pydantic has compiled the models
    that hold its family already; this compiles them again, in the order of their definition.
    """
    for entry in Entry.defined:
        entry.model_rebuild(force=True)


class Family(Entry):
    """An entry with several kinds; direct subclasses are roots, their subclasses are kinds."""

    model_config = ConfigDict(defer_build=True)
    registry: ClassVar[dict[str, type["Family"]]]
    shorthand: ClassVar[str | None] = None
    """A field whose presence alone tells the kind: ``{expr: …}`` is ``{kind: expr, expr: …}``."""
    example: ClassVar[str] = ""
    """Part of a spec that uses the kind with all its options, for its section of the language page;
    several are separated by lines of ``---``."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        super().__pydantic_init_subclass__()
        if cls.is_root():
            cls.registry = {}
        elif "kind" in cls.model_fields:
            cls.registry[cls.word()] = cls

    @classmethod
    def word(cls) -> str:
        """Return the word that stands for this kind in a spec."""
        return str(get_args(cls.model_fields["kind"].annotation)[0])

    @classmethod
    def words(cls) -> tuple[str, ...]:
        """Return the words of all kinds of this family."""
        return tuple(cls.registry)

    @classmethod
    def is_root(cls) -> bool:
        """Return whether this class is a family rather than one of its kinds."""
        return cls.__bases__[0].__name__ == "Family"

    @classmethod
    def expand(cls, data: Any) -> Any:
        """Write a bare word, or a mapping without ``kind``, out in full."""
        if isinstance(data, str):
            return {"kind": data}
        if isinstance(data, Mapping) and "kind" not in data:
            for word, member in cls.registry.items():
                if member.shorthand is not None and member.shorthand in data:
                    return {"kind": word, **data}
        return data

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if not cls.is_root():
            return handler(source)
        choices = {word: handler.generate_schema(kind) for word, kind in cls.registry.items()}
        union = core_schema.tagged_union_schema(choices, discriminator="kind")
        return core_schema.no_info_before_validator_function(cls.expand, union)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        described = handler(schema)
        if cls.is_root():
            return {"anyOf": [{"enum": cls.bare()}, *described.pop("oneOf")]}
        if "kind" in cls.model_fields:
            definition = handler.resolve_ref_schema(described)
            definition["properties"]["kind"]["description"] = "the word of this kind"
            if cls.shorthand is None:
                definition["required"] = ["kind", *definition.get("required", [])]
        return described

    @classmethod
    def bare(cls) -> list[str]:
        """Return the words that may stand alone: kinds without a field that must be given."""
        return [word for word, kind in cls.registry.items() if not kind.required()]

    @classmethod
    def required(cls) -> list[str]:
        """Return the fields that a bare word would leave unset."""
        return [n for n, f in cls.model_fields.items() if f.is_required()]


@dataclass(frozen=True)
class BareWord:
    """For JSON Schema: one of the words of ``family`` that may stand alone."""

    family: type[Family]

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"enum": self.family.bare()}
