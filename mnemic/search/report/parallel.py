"""Parallel coordinates: a line for each point, through the value of each choice to its skill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mnemic.search.report.figures import svg
from mnemic.search.space.choices import Choice, Choose
from mnemic.search.space.space import Space
from mnemic.search.study.records import Record

Skills = Sequence[tuple[Record, float]]

MOST = 300
"""How many lines a picture shows, those of the best points."""
ABSENT = -0.1
"""The height, below the axis, at which points pass a choice that they do not have."""


def parallel(space: Space, skills: Skills) -> str:
    """Return the picture as SVG; each line is a group of class ``trial`` with a title to read."""
    text = svg(draw(space, skills), "parallel")
    for one, skill in skills:
        told = "; ".join(f"{name} = {value}" for name, value in one.answers.items())
        title = escape(f"trial {one.number}: skill {skill:.3f}; {told}")
        group = f'<g id="{_mark(one)}"'
        text = text.replace(f"{group}>", f'{group} class="trial"><title>{title}</title>')
    return text


def draw(space: Space, skills: Skills) -> Figure:
    """Draw the lines; a point without an answer on an axis passes below the axis."""
    best = sorted(skills, key=lambda pair: pair[1])[-MOST:]
    asked = [n for n in space.choices if any(n in one.answers for one, _ in best)]
    low = min((s for _, s in best), default=0.0)
    high = max((s for _, s in best), default=1.0)
    figure = Figure(figsize=(2 + 1.6 * len(asked), 4.6), layout="constrained")
    axis = figure.subplots()
    for one, skill in best:
        share = (skill - low) / (high - low) if high > low else 1.0
        heights = [height(space.choices[name], one.answers.get(name)) for name in asked]
        axis.plot(
            [*heights, share], color=matplotlib.colormaps["turbo"](share), alpha=0.45, lw=1.1,
            gid=_mark(one),
        )  # fmt: skip
    for at, name in enumerate(asked):
        _mark_axis(axis, at, _marks(space.choices[name]))
        if any(name not in one.answers for one, _ in best):
            _mark_axis(axis, at, [(ABSENT, "not asked")])
    _mark_axis(axis, len(asked), [(0.0, f"{low:.2f}"), (1.0, f"{high:.2f}")])
    axis.set_xticks(range(len(asked) + 1), [*asked, "mean skill"], fontsize=8)
    axis.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False, length=0)
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    return figure


def height(choice: Choice, answer: object) -> float:
    """Return where an answer lies on its axis, from 0 to 1; ``ABSENT`` where there is none."""
    if answer is None:
        return ABSENT
    if isinstance(choice, Choose):
        return (choice.labels.index(str(answer)) + 1) / (len(choice.labels) + 0.5)
    number = float(str(answer))
    if choice.log:
        return math.log(number / choice.low) / math.log(choice.high / choice.low)
    return (number - choice.low) / (choice.high - choice.low)


def _marks(choice: Choice) -> list[tuple[float, str]]:
    if isinstance(choice, Choose):
        return [(height(choice, label), label) for label in choice.labels]
    return [(0.0, f"{choice.low:g}"), (1.0, f"{choice.high:g}")]


def _mark_axis(axis: Axes, at: int, marks: list[tuple[float, str]]) -> None:
    """Draw one vertical axis and its labels."""
    axis.vlines(at, 0, 1, color="#999999", lw=0.8, zorder=0)
    for place, label in marks:
        axis.annotate(
            label, (at, place), xytext=(4, 0), textcoords="offset points", fontsize=7,
            va="center", bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
        )  # fmt: skip


def _mark(one: Record) -> str:
    return f"trial-{one.number}"
