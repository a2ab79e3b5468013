"""Find where an unknown key of a spec belongs, for error messages."""

from collections.abc import Iterator
from functools import cache
from typing import Final

from mnemic.dsl.axis import Entry
from mnemic.dsl.coefficients import Coefficient
from mnemic.dsl.shape import Shape
from mnemic.dsl.spec import Spec

DEEPEST: Final = 2
"""Keys of a place that are looked at: ``retention.decay``, not ``optimizer.anchor.chunk``."""

OTHERS: Final = {
    "loss": "bias", "objective": "bias", "lr": "rate", "nheads": "heads", "forget": "decay",
    "expand": "expansion", "kernel_size": "convolution", "conv": "convolution",
}  # fmt: skip
"""What options are called elsewhere."""


def home(key: str) -> str | None:
    """Return the one place of a spec that ``key`` names: an option or a coefficient of that name,
    the axis that has such a kind, or an option that has this name in other libraries. None where
    there is no such place, or more than one.

    >>> [home(key) for key in ("decay", "alpha", "huber", "loss", "decoy")]
    ['retention.decay', 'retention.decay', 'bias', 'bias', None]
    """
    word = OTHERS.get(key, key)
    for names in (_options(), _coefficients(), _kinds()):
        if word in names and len(word) > 1:  # a letter may stand for anything
            return names[word]
    return None


def home_of_part(key: str) -> str | None:
    """Return the place of the option whose name is the last part of a compound word, if any.

    >>> home_of_part("learning_rate"), home_of_part("rate")
    ('optimizer.rate', None)
    """
    _, cut, last = key.replace("-", "_").rpartition("_")
    return _options().get(last) if cut else None


def kinds_with(place: str) -> tuple[str, ...]:
    """Return the kinds of the family above a place that have an option there.

    >>> kinds_with("bias.delta")
    ('huber',)
    """
    above, _, name = place.rpartition(".")
    family = _at(tuple(above.split("."))).family if above else None
    registry = family.registry if family else {}
    return tuple(word for word, kind in registry.items() if name in Shape(kind).fields())


def expressions_in(place: str) -> tuple[str, ...]:
    """Return how expressions are written one level below a place.

    >>> expressions_in("retention")
    ('{local: {bregman: "..."}}', '{local: {f-divergence: "..."}}')
    """
    shape, found = _at(tuple(place.split("."))), []
    for name in shape.fields():
        family = shape.at(name).family
        for kind in family.registry.values() if family else ():
            field = Shape(kind).fields().get(kind.shorthand or "")
            if field is not None and field.annotation is str:
                found.append(f'{{{name}: {{{kind.shorthand}: "..."}}}}')
    return tuple(found)


@cache
def _options() -> dict[str, str | None]:
    """Return the least nested place of each option; None where several are equally nested."""
    found: dict[str, list[str]] = {}
    for place in _places(Shape(Spec), ()):
        found.setdefault(place[-1], []).append(".".join(place))
    return {name: _only(places) for name, places in found.items()}


@cache
def _kinds() -> dict[str, str | None]:
    """Return the least nested place that has a kind of each word; None where there are several."""
    found: dict[str, list[str]] = {}
    for place in _places(Shape(Spec), ()):
        family = _at(place).family
        for word in family.words() if family else ():
            found.setdefault(word, []).append(".".join(place))
    return {name: _only(places) for name, places in found.items()}


@cache
def _coefficients() -> dict[str, str | None]:
    """Return the place of each coefficient of the language, by its name in expressions."""
    return {name: place for name, place in Spec(name="any").all_coefficients() if name.isalpha()}


def _only(places: list[str]) -> str | None:
    """Return the least nested of the places, if only one is on that level."""
    least = min(place.count(".") for place in places)
    first = {place for place in places if place.count(".") == least}
    return first.pop() if len(first) == 1 else None


def _places(shape: Shape, within: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the place of every option at or below a shape; not those that coefficients have."""
    kinds = [Shape(kind) for kind in shape.family.registry.values()] if shape.family else [shape]
    for one in kinds:
        entry = one.entry
        if entry is None or issubclass(entry, Coefficient) or len(within) == DEEPEST:
            continue
        for name in one.fields():
            if name != "kind":
                yield (*within, name)
                yield from _places(one.at(name), (*within, name))


def _at(place: tuple[str, ...]) -> Shape:
    """Return the shape of a place in any of the kinds above it; an empty one if there is none."""
    shapes: list[Shape] = [Shape(Spec)]
    for name in place:
        inside: list[Shape] = []
        for shape in shapes:
            kinds = shape.family.registry.values() if shape.family else (shape.entry,)
            held: list[type[Entry]] = [kind for kind in kinds if kind is not None]
            inside += [Shape(k).at(name) for k in held if name in Shape(k).fields()]
        shapes = inside
    return shapes[0] if shapes else Shape()
