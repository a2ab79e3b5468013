"""Specs made by hand that the best points are compared with: those that the space would allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from mnemic.dsl.catalogue import names
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec
from mnemic.search.space.one_block import by_hand
from mnemic.search.space.space import Space
from mnemic.search.study import work
from mnemic.search.study.budget import beyond, bounds
from mnemic.search.study.isolated import Bounds, Failure, isolated

ALL = "all"
"""The word for every packaged spec within the budget."""


def rivals(space: Space, logs: Path, told: Callable[[str], None]) -> Iterator[Spec]:
    """Yield each spec that ``confirm: {against: …}`` names, in the space's block.

    ``all`` stands for every packaged spec that fits the block and is within the budget; what is
    left out is told with the reason. A spec that is named itself is taken as it is.

    Raises:
        InvalidSpec: a spec that is named contradicts the space's block.
    """
    given = space.settings.confirm.against
    named = [name for name in given if name != ALL]
    yield from (by_hand(space, name) for name in named)
    if ALL not in given:
        return
    limits = bounds(space.settings, logs / "reference.log")
    for name in names():
        if name in named:
            continue
        try:
            spec = by_hand(space, name)
        except InvalidSpec as error:
            told(f"{name} is left out: {str(error).splitlines()[0]}")
            continue
        why = _over(space, spec, limits, logs / f"{name}.log")
        if why:
            told(f"{name} is left out: {why}")
        else:
            yield spec


def _over(space: Space, spec: Spec, limits: dict[str, float], log: Path) -> str:
    """Say why a spec is over the budget or cannot be looked at; empty where it is within."""
    if not limits:
        return ""
    settings = space.settings
    allowed = Bounds(settings.limits.seconds, settings.limits.memory)
    seen = isolated(work.look, spec, settings, None, bounds=allowed, log=log)
    if isinstance(seen, Failure):
        return f"{seen.kind}: {seen.why}"
    return ", ".join(f"{part} of the budget" for part in beyond(seen.value.costs, limits))
