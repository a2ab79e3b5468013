"""``best/*.yaml``: the best points as specs to compile, each with its results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mnemic.dsl.spec import Source, Spec
from mnemic.dsl.writing import to_yaml
from mnemic.models.files import replacing
from mnemic.search.report.ranking import Ranked
from mnemic.search.space.space import Space

MOST = 10


def write_best(space: Space, points: Sequence[Ranked], folder: Path) -> list[Path]:
    """Write the best points, ``1.yaml`` the best; earlier ones are replaced."""
    folder.mkdir(exist_ok=True)
    paths = []
    for place, point in enumerate(points[:MOST], 1):
        path = folder / f"{place}.yaml"
        with replacing(path) as beside:
            beside.write_text(to_yaml(best_spec(space, point, place)), encoding="utf-8")
        paths.append(path)
    for left in folder.glob("*.yaml"):
        if left.stem.isdecimal() and left not in paths:
            left.unlink()
    return paths


def best_spec(space: Space, point: Ranked, place: int) -> Spec:
    """Return the point's spec with a title and notes that give its results."""
    tasks = ", ".join(f"{task} {skill}" for task, skill in point.tasks.items())
    steps = space.settings.rungs[-1].steps
    told = {
        "title": f"Number {place} of the search {space.name}",
        "source": Source(paper=f"mnemic search {space.name}", where=f"trial {point.record.number}"),
        "notes": f"Skill {point.skill} after {steps} steps, {point.skill.seeds} seeds: {tasks}.",
    }
    return point.spec.model_copy(update=told)
