"""Locate a hand-written spec in a space, so that the search may start from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from pydantic import ValidationError

from mnemic.dsl.block import Block
from mnemic.dsl.extends import merged, stack
from mnemic.dsl.hashing import LABELS
from mnemic.dsl.spec import Spec
from mnemic.search.space.asking import Unanswered, by_answers
from mnemic.search.space.choices import (
    Answer,
    Branch,
    Choice,
    Choose,
    Node,
    Plain,
    Range,
    Resolved,
    choices,
    resolve,
)
from mnemic.search.space.space import Space

MOST = 5000
"""Ways to write one axis that are tried."""


def answers_of(space: Space, spec: Spec) -> dict[str, Answer] | None:
    """Find the answers that give a spec of the same meaning; None where the space has none.

    A block without choices is taken from the space, so that only the rule must match. Whatever the
    spec's block leaves open (heads, sizes) takes the space's first option. For one axis after the
    other, the options of the space are tried until one means the same as the spec's axis. Numbers
    in ranges are taken from the spec.
    """
    found: dict[str, Answer] = {}
    written = {str(key): node for key, node in space.root.items}
    if isinstance(written.get("extends"), Choose):
        return None
    fixed = {"mnemic", *LABELS, *(() if chosen(written.get("block")) else ("block",))}
    for name in (n for n in Spec.model_fields if n not in fixed):
        told = _axis(space, name, written, spec)
        if told is None:
            return None
        found |= told
    return found


def chosen(node: Node | None) -> bool:
    """Return whether there is a choice in a part of a space."""
    return node is not None and any(True for _ in choices(node))


def _axis(
    space: Space, name: str, written: Mapping[str, Node], spec: Spec
) -> dict[str, Answer] | None:
    """Find the answers of one axis, merging the space's entry over that of its base."""
    items = {k: written[k] for k in ("extends", name) if k in written}
    root = Branch((("name", Plain(space.name, ("name",))), *items.items()), (), True)
    numbers = spec.model_dump(mode="json", by_alias=True)
    for answers, resolved in islice(_ways(root, numbers), MOST):
        if _says(_value(space, resolved, name), getattr(spec, name)):
            return answers
    return None


def _says(value: Any, wanted: Any) -> bool:
    """Return whether an axis as written has the wanted meaning; a block may specify more."""
    if not (isinstance(value, Block) and isinstance(wanted, Block)):
        return bool(value == wanted)
    return all(getattr(value, field) == told for field, told in wanted if told is not None)


def _ways(root: Branch, numbers: Mapping[str, Any]) -> Iterator[tuple[dict[str, Answer], Resolved]]:
    """Yield every combination of options; ranges take the spec's number at their place."""
    waiting: list[dict[str, Answer]] = [{}]
    while waiting:
        given = waiting.pop()
        try:
            yield given, resolve(root, by_answers(given))
        except Unanswered as missing:
            for answer in reversed(_answers(missing.name, missing.choice, numbers)):
                waiting.append({**given, missing.name: answer})


def _answers(name: str, choice: Choice, numbers: Mapping[str, Any]) -> tuple[Answer, ...]:
    if isinstance(choice, Choose):
        return choice.labels
    found = _number(name, numbers)
    if found is None or not _within(choice, found):
        return ()
    return (int(found) if choice.integral else found,)


def _within(choice: Range, number: float) -> bool:
    values = choice.values
    inside = choice.low <= number <= choice.high
    return inside and (values is None or any(abs(number - v) < 1e-12 for v in values))


def _number(name: str, numbers: Any) -> float | None:
    """Return the number at a choice's place; a fixed coefficient's where one stands there."""
    place = ".".join(step.partition("=")[0] for step in name.split("."))
    for step in place.split("."):
        if not isinstance(numbers, Mapping) or step not in numbers:
            return None
        numbers = numbers[step]
    if isinstance(numbers, Mapping):
        numbers = numbers.get("value")
    plain = isinstance(numbers, int | float) and not isinstance(numbers, bool)
    return numbers if plain else None


def _value(space: Space, resolved: Resolved, name: str) -> Any:
    """Return what an axis means as it is written; None where it means nothing."""
    document = replace(space.placed(resolved), data=resolved.data)
    try:
        spec = Spec.model_validate(merged(stack(document)), by_alias=True, by_name=False)
    except ValidationError:
        return None
    return getattr(spec, name)
