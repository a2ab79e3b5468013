"""The budget that every point keeps to: numbers, or multiples of what a reference has."""

from __future__ import annotations

from pathlib import Path

from mnemic.dsl.load import load
from mnemic.errors import UsageError
from mnemic.search.space.settings import Settings
from mnemic.search.study import work
from mnemic.search.study.isolated import Bounds, Failure, isolated


def bounds(settings: Settings, log: Path) -> dict[str, float]:
    """The upper bound of each cost that has one.

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
