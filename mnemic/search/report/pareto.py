"""Skill against cost (state, FLOPs, measured time), and the points that none dominates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib
from matplotlib.figure import Figure

from mnemic.search.report.comparable import described
from mnemic.search.report.figures import AXES, WORDS, svg
from mnemic.search.report.points import Point
from mnemic.search.report.times import step_time, timed, untimed
from mnemic.search.study.halving import dominates
from mnemic.search.study.scores import interval

TIME: Final = "step_seconds"
COSTS: Final = AXES
"""The costs that have a front: ``state_bytes``, ``flops``, ``step_seconds``."""


@dataclass(frozen=True)
class Front:
    """The points that no other dominates in skill and one cost, cheapest first."""

    cost: str
    points: tuple[Point, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the front as plain data."""
        return {"cost": self.cost, "points": [
            {"name": p.name, "skill": p.skill, self.cost: p.costs[self.cost]} for p in self.points
        ]}  # fmt: skip


def fronts(points: Sequence[Point]) -> list[Front]:
    """Return the front for each cost; for time only among points timed on one device."""
    return [Front(cost, _front(points, (cost,))) for cost in COSTS]


def overall(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that no other dominates in skill and all costs together."""
    return _front(points, COSTS)


def _front(points: Sequence[Point], costs: Sequence[str]) -> tuple[Point, ...]:
    if TIME in costs:
        points = timed(points)
    values = [[-point.skill, *(point.costs[cost] for cost in costs)] for point in points]
    best = [
        point for point, mine in zip(points, values, strict=True)
        if not any(dominates(other, mine) for other in values)
    ]  # fmt: skip
    return tuple(sorted(best, key=lambda point: (point.costs[costs[0]], -point.skill)))


def page(points: Sequence[Point], sources: Sequence[str], picture: str = "") -> str:
    """Return the fronts as Markdown; ``picture`` is the path of an image to show."""
    parts = [
        f"# Pareto fronts\n\n{len(points)} points of {', '.join(sources)}: mean skill over "
        f"{described(points)} "
        "against the bytes of one sequence's state after the longest task, the FLOPs of matrix "
        "products per token, and the milliseconds per training step (medians, on a machine that "
        "may have had other work). A point is on a front if no other has as much skill at a lower "
        "cost. ± is half of the 95 % interval over seeds; points whose intervals overlap are not "
        "told apart."
    ]
    if left := untimed(points):
        parts.append(left)
    if picture:
        parts.append(f"![Skill against state, FLOPs and time]({picture})")
    parts += [
        f"## Skill against {WORDS[one.cost]}\n\n{_table(one.points)}" for one in fronts(points)
    ]
    parts.append(f"## Against all three\n\n{_table(overall(points))}")
    return "\n\n".join(parts) + "\n"


def _table(points: Sequence[Point]) -> str:
    rows = [["spec", "mean skill", "state, bytes", "FLOPs a token", "ms a step"], ["---"] * 5]
    rows += [
        [p.name, str(interval(list(p.seeds.values()))), f"{p.costs['state_bytes']:,.0f}",
         f"{p.costs['flops']:,.0f}", step_time(p.runs)]
        for p in points
    ]  # fmt: skip
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


@matplotlib.rc_context({"text.parse_math": False})  # names are text
def picture(points: Sequence[Point]) -> str:
    """Return the three fronts as SVG; triangles were known, circles found by a search."""
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    for axis, front in zip(figure.subplots(1, len(COSTS)), fronts(points), strict=True):
        shown = timed(points) if front.cost == TIME else points
        for marker, some in (("^", [p for p in shown if p.known]),
                             ("o", [p for p in shown if not p.known])):  # fmt: skip
            axis.plot([p.costs[front.cost] for p in some], [p.skill for p in some], marker,
                      ms=4, alpha=0.5)  # fmt: skip
        axis.step([p.costs[front.cost] for p in front.points], [p.skill for p in front.points],
                  "k-", where="post", lw=1)  # fmt: skip
        for one in front.points:
            axis.annotate(one.name, (one.costs[front.cost], one.skill), fontsize=6)
        axis.set(xlabel=WORDS[front.cost], ylabel="mean skill", xscale="log")
    return svg(figure, "pareto")
