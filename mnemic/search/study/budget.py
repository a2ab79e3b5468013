"""The cost limits for every point: numbers, or multiples of a reference spec's costs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Final

from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, UsageError
from mnemic.search.space.asking import by_answers, by_chance
from mnemic.search.space.settings import Settings
from mnemic.search.space.space import Space
from mnemic.search.study import work
from mnemic.search.study.isolated import Bounds, Failure, isolated
from mnemic.search.study.starts import starts

LOOKS: Final = 20
"""Points that are looked at before a budget is taken for one that none meets."""


def bounds(settings: Settings, log: Path) -> dict[str, float]:
    """Return the upper bound of each cost that has one.

    Raises:
        UsageError: the reference cannot be built with the space's model.
    """
    told = settings.constraints.model_dump(exclude_none=True)
    if not any(isinstance(bound, str) for bound in told.values()):
        return {name: float(bound) for name, bound in told.items()}
    limits = Bounds(settings.limits.seconds, settings.limits.memory)
    found = isolated(work.look, load(settings.reference), settings, None, bounds=limits, log=log)
    if isinstance(found, Failure):
        raise UsageError(f"reference {settings.reference}: {found.why}")
    costs = found.value.costs
    return {
        name: costs[name] * float(bound.removesuffix("x")) if isinstance(bound, str) else bound
        for name, bound in told.items()
    }


def beyond(costs: Mapping[str, float], limits: Mapping[str, float]) -> tuple[str, ...]:
    """Return the costs above their bounds, each with its multiple of the bound: ``flops 1.3x``."""
    return tuple(f"{cost} {_times(costs[cost] / bound)}" for cost, bound in limits.items()
                 if costs[cost] > bound)  # fmt: skip


def _times(ratio: float) -> str:
    """Write a number above one with as few digits as show this: ``1.3x``, ``1.004x``."""
    shown = (f"{ratio:.{digits}f}" for digits in range(1, 16))
    return next((text for text in shown if float(text) > 1), str(ratio)) + "x"


def demand_budget(space: Space, limits: dict[str, float], log: Path) -> None:
    """Compute the costs of points, starting specs first, until one is within the budget.

    Raises:
        UsageError: none of `LOOKS` points is; the message names the nearest one.
    """
    if not limits:
        return
    settings = space.settings
    allowed = Bounds(settings.limits.seconds, settings.limits.memory)
    nearest: dict[str, float] = {}
    for spec in _some(space):
        seen = isolated(work.look, spec, settings, None, bounds=allowed, log=log)
        if isinstance(seen, Failure):
            continue
        over = {name: seen.value.costs[name] / bound for name, bound in limits.items()}
        if max(over.values()) <= 1:
            return
        if not nearest or max(over.values()) < max(nearest.values()):
            nearest = over
    if not nearest:  # none could be looked at: trials will tell why
        return
    told = ", ".join(f"{name} at most {bound:g}" for name, bound in limits.items())
    least = ", ".join(f"{name} {share:.2g}x" for name, share in nearest.items())
    raise UsageError(
        f"space {space.name!r}: none of {LOOKS} points is within the budget of {told}; the nearest "
        f"has {least} of it; raise 'constraints'"
    )


def _some(space: Space) -> Iterator[Spec]:
    """Yield up to `LOOKS` valid points: the starting specs, and then random ones."""
    yield from islice(_valid(space), LOOKS)


def _valid(space: Space) -> Iterator[Spec]:
    """Yield the starting specs, and then random points that are valid specs."""
    chance = by_chance(random.Random(0))
    asked = (by_answers(answers) for _, answers in starts(space))
    for ask in chain(asked, repeat(chance, 10 * LOOKS)):
        with suppress(InvalidSpec):
            yield space.point(ask).spec
