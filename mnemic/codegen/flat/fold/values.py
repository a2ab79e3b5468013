"""What is known of an expression's value before the folder runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mnemic.codegen.flat.modules import Name


@dataclass(frozen=True)
class Value:
    """Something that is not ``None``, and of which nothing else is known."""


@dataclass(frozen=True)
class Constant(Value):
    """A number, a string, a truth value, ``None``, or a frozen set of these."""

    value: object


@dataclass(frozen=True)
class Full(Value):
    """Something that counts as true."""


@dataclass(frozen=True)
class Hollow(Value):
    """Something that counts as false, ``None`` perhaps."""


@dataclass(frozen=True)
class Kind(Value):
    """An instance of a class of the folder."""

    of: Name


@dataclass(frozen=True, eq=False)
class Made(Value):
    """One instance that the folder makes, and what is known of its fields."""

    of: Name
    fields: Mapping[str, Value | None]


@dataclass(frozen=True)
class Items(Value):
    """A tuple, or an empty mapping, whose items are these."""

    items: tuple[Value | None, ...]


@dataclass(frozen=True)
class Fresh(Items):
    """The items of a list, a set or an empty mapping: whoever holds it may change it."""


@dataclass(frozen=True)
class Each(Value):
    """A tuple of unknown length, and what is known of each item."""

    item: Value | None


def truth(value: Value | None) -> bool | None:
    """Return whether a value counts as true; ``None`` where that is not known."""
    match value:
        case Constant(found):
            return bool(found)
        case Items(items):
            return bool(items)
        case Full() | Kind() | Made():
            return True
        case Hollow():
            return False
    return None


def is_none(value: Value | None) -> bool | None:
    """Return whether a value is ``None``; ``None`` where that is not known."""
    if value is None or isinstance(value, Hollow):
        return None
    return isinstance(value, Constant) and value.value is None


def joined(values: Iterable[Value | None]) -> Value | None:
    """Return what is known of a value that is one of ``values``."""
    found = list(values)
    if not found or any(x is None for x in found):
        return None
    first = found[0]
    if all(x is first or (not isinstance(x, Made) and x == first) for x in found):
        return first
    kinds = {x.of if isinstance(x, Made | Kind) else None for x in found}
    if len(kinds) == 1 and None not in kinds:
        (of,) = kinds
        assert of is not None
        return Kind(of)
    if any(is_none(x) is not False for x in found):
        return None
    if all(truth(x) for x in found):
        return Full()
    return Value()


def plain(value: Value | None) -> object:
    """Return the Python object of a constant, a tuple of constants included.

    Raises ``LookupError`` where a value is no constant.
    """
    match value:
        case Constant(found):
            return found
        case Items(items):
            return tuple(plain(x) for x in items)
    raise LookupError


def constant(found: object) -> Value:
    """Return a Python object as a value: a tuple by its items."""
    if isinstance(found, tuple):
        return Items(tuple(constant(x) for x in found))
    return Constant(found)
