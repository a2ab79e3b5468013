"""The pictures of a report, as SVG to stand in a page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from mnemic.search.report.ranking import Ranked, front
from mnemic.search.report.times import timed
from mnemic.search.study.training import Run

AXES = ("state_bytes", "flops", "step_seconds")
WORDS = {
    "state_bytes": "state (bytes)", "flops": "FLOPs a token", "step_seconds": "seconds a step",
    "parameters": "parameters", "mean": "mean skill",
}  # fmt: skip
PLACES = 20
"""How many points a picture of a ranking shows."""
SHOWN = 6
"""How many points have a curve in one picture; specs to begin with may double them."""


def fronts(points: Sequence[Ranked]) -> str:
    """Draw mean skill over each cost; the points that none dominates are joined.

    Over time only points timed on one device are drawn.
    """
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for axis, cost in zip(figure.subplots(1, len(AXES)), AXES, strict=True):
        shown = timed(points) if cost == "step_seconds" else points
        best = sorted(front(shown, ("mean", cost)), key=lambda one: one.measured[cost])
        for marker, some in (("o", [p for p in shown if not p.start]),
                             ("^", [p for p in shown if p.start])):  # fmt: skip
            axis.plot([p.measured[cost] for p in some], [p.skill.mean for p in some], marker,
                      ms=4, alpha=0.6)  # fmt: skip
        axis.step([p.measured[cost] for p in best], [p.skill.mean for p in best], "k-",
                  where="post", lw=1)  # fmt: skip
        for one in best:
            axis.annotate(one.start or one.spec.name.rpartition("-")[2],
                          (one.measured[cost], one.skill.mean), fontsize=6)  # fmt: skip
        axis.set(xlabel=WORDS[cost], ylabel="mean skill", xscale="log")
    return svg(figure, "fronts")


def ranking(points: Sequence[Ranked]) -> str:
    """Draw the mean skill of the best points, best first, with 95 % intervals over seeds."""
    shown = list(points[:PLACES])[::-1]
    figure = Figure(figsize=(8, 1 + 0.28 * len(shown)), layout="constrained")
    axis = figure.subplots()
    for place, one in enumerate(shown):
        half = one.skill.half if one.skill.seeds > 1 else 0.0
        axis.errorbar(one.skill.mean, place, xerr=half, fmt="^" if one.start else "o", ms=5,
                      capsize=3, color="tab:orange" if one.start else "tab:blue")  # fmt: skip
    names = [one.start or one.spec.name for one in shown]
    axis.set_yticks(range(len(shown)), names, fontsize=7)
    axis.grid(axis="x", alpha=0.3)
    axis.set(xlabel="mean skill at the last rung")
    return svg(figure, "ranking")


def bars(shares: dict[str, float]) -> str:
    """Draw the share of the skill's variance that each choice explains."""
    names = list(shares)[:20][::-1]
    figure = Figure(figsize=(8, 0.6 + 0.28 * len(names)), layout="constrained")
    axis = figure.subplots()
    axis.barh(names, [shares[name] for name in names], color="tab:green")
    axis.set(xlabel="share of the variance of mean skill at the first trained rung", xlim=(0, 1))
    return svg(figure, "importance")


def history(skills: Sequence[tuple[int, float]]) -> str:
    """Draw the skill of each trial at the first trained rung, and the best so far."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    axis = figure.subplots()
    axis.plot([n for n, _ in skills], [s for _, s in skills], ".", alpha=0.5)
    best, top = [], -1e9
    for _, skill in skills:
        top = max(top, skill)
        best.append(top)
    axis.step([n for n, _ in skills], best, "k-", where="post")
    axis.set(xlabel="trial", ylabel="mean skill, first trained rung")
    return svg(figure, "history")


def curves(points: Sequence[Ranked]) -> str:
    """Draw the held-out score of the best points over training, a picture a task."""
    chosen = [*points[:SHOWN], *(p for p in points[SHOWN:] if p.start)][: 2 * SHOWN]
    tasks = list(chosen[0].tasks) if chosen else []
    if not tasks:
        return ""
    rows = -(-len(tasks) // 3)
    figure = Figure(figsize=(11, 3 * rows), layout="constrained")
    grid: Any = figure.subplots(rows, min(3, len(tasks)), squeeze=False)
    for axis, task in zip(grid.flat, tasks, strict=False):
        for one in chosen:
            steps, scores = mean_curve([run for run in one.runs if run.task == task])
            axis.plot(steps, scores, label=one.start or one.spec.name, lw=1.2,
                      ls="--" if one.start else "-")  # fmt: skip
        axis.set(title=task, xlabel="step", ylabel="held-out score")
    grid.flat[0].legend(fontsize=6)
    for axis in list(grid.flat)[len(tasks) :]:
        axis.set_axis_off()
    return svg(figure, "curves")


def mean_curve(runs: Sequence[Run]) -> tuple[list[int], list[float]]:
    """Return the mean over seeds at each evaluation that all runs have: steps and scores."""
    pairs = list(zip(*(run.curve for run in runs), strict=False))
    return [p[0][0] for p in pairs], [sum(s for _, s in p) / len(p) for p in pairs]


def svg(figure: Figure, salt: str) -> str:
    """Return the figure as an SVG element; the same figure gives the same text."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
