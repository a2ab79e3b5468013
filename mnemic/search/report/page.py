"""The page: one HTML file with everything in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib

from mnemic.compiler.explain.render import equations
from mnemic.dsl.writing import to_yaml
from mnemic.models.result import versions
from mnemic.pipeline import derive
from mnemic.search.report import figures
from mnemic.search.report.best import best_spec
from mnemic.search.report.effects import Effects, effects
from mnemic.search.report.effects_page import crossed, forest
from mnemic.search.report.importance import FEWEST, first_skills, importance
from mnemic.search.report.nearest import nearest
from mnemic.search.report.parallel import parallel
from mnemic.search.report.points import of_records
from mnemic.search.report.ranking import Ranked
from mnemic.search.report.ties import first_group
from mnemic.search.report.times import step_time, untimed
from mnemic.search.space.space import Space
from mnemic.search.study.confirm import Confirmed
from mnemic.search.study.records import (
    DUPLICATE,
    FINISHED,
    Record,
    replaced,
    training_seconds,
)
from mnemic.search.study.scores import by_seed, by_task, interval
from mnemic.search.study.search import Search

if TYPE_CHECKING:
    from mnemic.search.report.write import Summary

ROWS, DETAILS = 20, 5


@matplotlib.rc_context({"text.parse_math": False})
def page(search: Search, records: Sequence[Record], summary: Summary) -> str:
    """Return the report as HTML that needs nothing beside it.

    Names are shown as text, also in figures, even if they contain HTML or TeX markup.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    space, points = search.space, summary.best
    loader = PackageLoader("mnemic.search.report", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    skills = first_skills(space, records)
    shares = importance(space, records)
    trained, _ = of_records(records)
    found = effects(trained, random=True) if trained else Effects(0, (), (), {}, ())
    seeds = {p.start or p.spec.name: by_seed(p.runs) for p in points if p.skill.seeds > 1}
    told: dict[str, Any] = {
        "name": space.name,
        "verdict": summary.verdict,
        "confirmed": _confirmed(space, summary.again, {p.spec.name for p in points}),
        "counts": _counts(records, summary),
        "budget": _budget(search),
        "setting": _setting(),
        "tasks": list(space.settings.tasks),
        "best": [_row(space, point) for point in points[:ROWS]],
        "ranking": figures.ranking(points) if points else "",
        "first": ", ".join(first_group(seeds)) if len(seeds) > 1 else "",
        "effects": forest(found) if found.main else "",
        "crossed": crossed(found) if found.interactions else "",
        "early": space.settings.confirm.early,
        "unknown": found.unknown,
        "fronts": figures.fronts(points) if points else "",
        "untimed": untimed(points),
        "fewest": FEWEST,
        "bars": figures.bars(shares) if shares else "",
        "parallel": parallel(space, skills) if skills else "",
        "history": figures.history([(r.number, s) for r, s in skills]) if skills else "",
        "curves": figures.curves(points),
        "details": [_details(space, point, i) for i, point in enumerate(points[:DETAILS], 1)],
        "reasons": _reasons(records),
        "space": _text(space),
    }
    return environment.get_template("report.html.j2").render(told)


def _confirmed(
    space: Space, again: Sequence[Confirmed], found: Collection[str]
) -> list[dict[str, Any]]:
    """Return a table of fresh seeds for each setting, best mean skill first, failures last."""
    tables = []
    for setting in dict.fromkeys(one.setting for one in again):
        of = [one for one in again if one.setting == setting]
        of.sort(key=lambda one: -one.skill.mean if one.skill else math.inf)
        rows = [
            {
                "name": one.name,
                "found": one.name in found,
                "why": one.why,
                "seeds": one.skill.seeds if one.skill else "",
                "skill": str(one.skill) if one.skill else "",
                "tasks": [str(interval(x)) for x in _tasks(space, one)],
            }
            for one in of
        ]
        tables.append({"setting": setting, "rows": rows})
    return tables


def _tasks(space: Space, one: Confirmed) -> list[list[float]]:
    skills = by_task(one.runs)
    return [skills[task] for task in space.settings.tasks if task in skills]


def _counts(records: Sequence[Record], summary: Summary) -> str:
    told = ", ".join(f"{count} {end}" for end, count in summary.ends.items())
    return (
        f"{len(records)} trials: {told}; {training_seconds(records) / 3600:.2f} hours of training"
    )


def _budget(search: Search) -> str:
    bounds = ", ".join(f"{name} at most {bound:g}" for name, bound in search.bounds.items())
    model, training = search.space.settings.model, search.space.settings.training
    return (
        f"Every point: {model.layers} layers of {model.dim}, batches of {training.batch}"
        + (f"; {bounds}." if bounds else ".")
    )  # fmt: skip


def _setting() -> str:
    told = versions()
    return f"mnemic {told['mnemic']}, torch {told['torch']}, {told['machine']}."


def _row(space: Space, point: Ranked) -> dict[str, Any]:
    return {
        "name": point.spec.name,
        "start": point.start or "",
        "kind": point.look["kind"],
        "skill": str(point.skill),
        "tasks": [str(point.tasks[task]) for task in space.settings.tasks],
        "parameters": f"{point.measured['parameters']:,.0f}",
        "state": f"{point.measured['state_bytes']:,.0f}",
        "flops": f"{point.measured['flops']:,.0f}",
        "step": step_time(point.runs),
    }


def _details(space: Space, point: Ranked, place: int) -> dict[str, str]:
    near = nearest(point.spec)
    rule = derive(point.spec)
    return {
        "name": point.spec.name,
        "verdict": f"skill {point.skill}" + (f", known as {point.start}" if point.start else ""),
        "yaml": to_yaml(best_spec(space, point, place)).partition("\n")[2],
        "equations": "\n".join(f"({e.number}) {e.text}" for e in equations(rule)),
        "near": f"Nearest of the known systems: {near.name}, {near.apart} entries apart.",
        "diff": near.text,
    }


def _reasons(records: Sequence[Record]) -> list[tuple[str, str, int]]:
    """Count the trials that ended early by end and reason, without those that were redone."""
    gone = replaced(records)
    ended = [
        r for r in records if r.kind not in (None, FINISHED, DUPLICATE) and r.number not in gone
    ]
    found = Counter((str(one.kind), one.why[:200]) for one in ended)
    return [(end, why, count) for (end, why), count in found.most_common(40)]


def _text(space: Space) -> str:
    import yaml

    return yaml.safe_dump(space.document.data, sort_keys=False, allow_unicode=True)
