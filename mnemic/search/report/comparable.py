"""Whether skills from several result folders can be compared: same tasks, same training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mnemic.errors import UsageError
from mnemic.search.report.points import Measured, Point

UNTOLD: Final = "as by default"


def together(places: Sequence[Measured]) -> list[Point]:
    """Join the points of several places; a point that is in two places is taken once.

    Raises:
        UsageError: they differ in tasks, task sizes, number of steps, model size or training
            settings; or the training settings of a place were not stored with its results.
    """
    first = places[0]
    for other in places[1:]:
        if _budget(other.points) != _budget(first.points):
            raise UsageError(
                f"{other.where}: trained on {described(other.points)}, "
                f"and {first.where} on {described(first.points)}: "
                "their skills cannot be compared"
            )
        theirs, ours = dict(_find_settings(other)), dict(_find_settings(first))
        if apart := [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]:
            told = ", ".join(
                f"{key} ({theirs.get(key, UNTOLD)}, not {ours.get(key, UNTOLD)})" for key in apart
            )
            raise UsageError(
                f"{other.where}: differs from {first.where} in {told}: "
                "their skills cannot be compared"
            )
    found = {(point.name, point.runs): point for place in places for point in place.points}
    return list(found.values())


def described(points: Sequence[Point]) -> str:
    """Describe the training that the points share, as ``mqar (100 steps)``."""
    return ", ".join(f"{task} ({steps} steps)" for task, steps in _budget(points))


def _budget(points: Sequence[Point]) -> tuple[Any, ...]:
    """Return, for each task, how many steps its runs took, by their last evaluation."""
    runs = points[0].runs
    return tuple(sorted({(run.task, run.curve[-1][0] if run.curve else 0) for run in runs}))


def _find_settings(place: Measured) -> Iterator[tuple[str, Any]]:
    """Yield the settings on which a place's skills depend besides specs and steps, by entry."""
    trained = _demand_settings(place)
    for task in place.points[0].tasks:
        for name, value in trained["tasks"][task].items():
            yield f"tasks.{task}.{name}", value
    for part in ("model", "training"):
        for name, value in trained[part].items():
            yield f"{part}.{name}", value
    yield "rates", trained["rates"]


def _demand_settings(place: Measured) -> Mapping[str, Any]:
    """Return the settings of a place; raise if they do not cover all its tasks."""
    if place.trained is None or not set(place.points[0].tasks) <= set(place.trained["tasks"]):
        raise UsageError(
            f"{place.where}: the record of its training settings is not kept beside it, so its "
            "skills cannot be compared with another place's; run the command that wrote it once "
            "more to keep one"
        )
    return place.trained
