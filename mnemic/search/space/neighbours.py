"""The neighbours of a spec: specs that differ from it in one axis, and are not the same rule.

The values of an axis come from the language's registry (every kind that needs no numbers) and from
the packaged specs, so a new loss or a new spec adds neighbours automatically.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import ValidationError

from mnemic.compiler.compare.differing_entries import Row, axes
from mnemic.compiler.compare.verdict import same
from mnemic.compiler.rule import Rule
from mnemic.compiler.uncompiled import refuse
from mnemic.dsl.axis import Family
from mnemic.dsl.catalogue import names
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec
from mnemic.dsl.writing import short
from mnemic.errors import InvalidSpec
from mnemic.pipeline import derive
from mnemic.search.space.identity import facts, identity

SECONDS: Final = 2.0
"""How long it is tried to decide whether two rules are the same."""


@dataclass(frozen=True)
class Axis:
    """An axis along which specs differ.

    Args:
        name: the axis's name.
        field: the spec's field.
        parts: entries of the field that belong to the axis; none if it is the whole field.
    """

    name: str
    field: str
    parts: tuple[str, ...] = ()

    def of(self, spec: Spec) -> Any:
        """Return a spec's value on the axis."""
        value = getattr(spec, self.field)
        return tuple(getattr(value, part) for part in self.parts) if self.parts else value

    def put(self, spec: Spec, value: Any) -> Spec:
        """Return the spec with another value on the axis, unchecked."""
        if self.parts:
            entry = getattr(spec, self.field)
            value = entry.model_copy(update=dict(zip(self.parts, value, strict=True)))
        return spec.model_copy(update={self.field: value})


def _axis(name: str, field: str, *parts: str) -> Axis:
    return Axis(name, field, parts)


def _rest(name: str, field: str, *others: str) -> Axis:
    """Return an axis of all entries of a field except those of other axes."""
    entry = type(getattr(Spec(name="any"), field))
    return Axis(name, field, tuple(part for part in entry.model_fields if part not in others))


AXES: Final = {
    axis.name: axis
    for axis in (
        _axis("loss", "bias"),
        _axis("features", "features"),
        _axis("weights", "weights"),
        _axis("window", "window"),
        _rest("retention", "retention", "order"),
        _axis("order", "retention", "order"),
        _rest("optimizer", "optimizer", "rate", "anchor"),
        _axis("rate", "optimizer", "rate"),
        _axis("anchor", "optimizer", "anchor"),
        _axis("keys", "keys"),
        _axis("function-class", "memory"),
        _axis("read-out", "readout"),
    )
}


@dataclass(frozen=True)
class Neighbour:
    """A spec that differs in one axis: the axis, what changed, the spec, its derived rule."""

    axis: str
    change: str
    spec: Spec
    rule: Rule


@dataclass(frozen=True)
class Dropped:
    """A change that gives no neighbour: the axis, the change, and why."""

    axis: str
    change: str
    why: str


def neighbours(
    spec: Spec, chosen: Sequence[str] = tuple(AXES), told: Callable[[str], None] | None = None
) -> tuple[list[Neighbour], list[Dropped]]:
    """Return every neighbour on the chosen axes, and the changes that give none.

    A change gives none if the changed spec is refused, or if its rule equals that of the spec or
    of an earlier neighbour: the same canonical form, up to the names of coefficients of the same
    origin. ``told`` is called with each change that is tried.
    """
    own = derive(spec)
    seen, found, dropped = {identity(own): "the spec itself"}, list[Neighbour](), list[Dropped]()
    for axis in (AXES[name] for name in chosen):
        for written in _changed(spec, axis):
            change = _words(axes(spec, written))
            if told is not None:
                told(f"{axis.name}: {change}")
            try:
                changed, rule = _ruled(written, axis)
            except InvalidSpec as error:
                dropped.append(Dropped(axis.name, change, _first(error)))
                continue
            key = identity(rule)
            if key in seen or _alike(own, rule):
                why = f"the same rule as {seen.get(key, 'the spec itself')}"
                dropped.append(Dropped(axis.name, change, why))
                continue
            seen[key] = change
            found.append(Neighbour(axis.name, change, changed, rule))
    return found, dropped


def values(axis: Axis) -> list[Any]:
    """Return every value of an axis that is known, each once."""
    every = [*_simple(axis), *map(axis.of, _packaged())]
    found: list[Any] = []
    for value in every:
        if value not in found:
            found.append(value)
    return found


@cache
def _packaged() -> tuple[Spec, ...]:
    return tuple(map(load, names()))


def _simple(axis: Axis) -> Iterator[Any]:
    """Yield the default, and of a family every kind that needs no numbers."""
    default = axis.of(Spec(name="any"))
    yield default
    if not isinstance(default, Family):
        return
    for kind in default.registry.values():
        try:
            yield kind()
        except ValidationError:
            continue


def _changed(spec: Spec, axis: Axis) -> Iterator[Spec]:
    """Yield the spec with each other value of the axis."""
    now = axis.of(spec)
    plain = {"title": None, "source": None, "notes": None, "published": ()}
    for value in values(axis):
        if value != now:
            changed = axis.put(spec, value)
            name = f"{axis.name}-{spec_hash(changed)[:8]}"
            yield changed.model_copy(update={"name": name, **plain})


def _ruled(changed: Spec, axis: Axis) -> tuple[Spec, Rule]:
    """Derive a changed spec's rule, adding coefficients that the new value reads if necessary.

    Raises:
        InvalidSpec: the spec is invalid, or no code can be generated for it.
    """
    try:
        return changed, _rule(changed)
    except InvalidSpec:
        owned = _with_coefficients(changed, axis)
        if owned is None:
            raise
        return owned, _rule(owned)


def _with_coefficients(changed: Spec, axis: Axis) -> Spec | None:
    """Add the coefficients that the axis's value reads, declared as in a packaged spec."""
    value = axis.of(changed)
    written = str(value)
    for owner in _packaged():
        if axis.of(owner) == value:
            named = {name: told for name, told in owner.coefficients.items()
                     if name not in changed.coefficients
                     and re.search(rf"\b{re.escape(name)}\b", written)}  # fmt: skip
            if named:
                both = {**changed.coefficients, **named}
                return changed.model_copy(update={"coefficients": both})
    return None


def _rule(changed: Spec) -> Rule:
    """Derive the rule of a spec built in memory; refuse one for which there is no code."""
    rule = derive(load(short(changed)))
    refuse(rule)
    return rule


def _alike(one: Rule, other: Rule) -> bool:
    """Return whether two rules are the same, with coefficients of the same origins."""
    return facts(one) == facts(other) and same(one, other, SECONDS)


def _words(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row.name} {row.a} → {row.b}" for row in rows)


def _first(error: InvalidSpec) -> str:
    issue = error.issues[0]
    return issue.message or f"read {issue.read}"
