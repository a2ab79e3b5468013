"""Parallel coordinates as SVG: a line a point through the value of each choice to its skill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from mnemic.search.space.choices import Choice, Choose
from mnemic.search.space.space import Space
from mnemic.search.study.records import Record

WIDE, HIGH, TOP, MARGIN = 150, 320, 60, 70
MOST = 300
"""Lines; the best ones."""
ABSENT = -0.1
"""The height, below the axis, at which points pass a choice that they do not have."""


def parallel(space: Space, skills: Sequence[tuple[Record, float]]) -> str:
    """The picture; an axis that a point was not asked for is passed below its end."""
    best = sorted(skills, key=lambda pair: pair[1])[-MOST:]
    asked = [n for n in space.choices if any(n in one.answers for one, _ in best)]
    width = MARGIN * 2 + WIDE * len(asked)
    low = min((s for _, s in best), default=0.0)
    high = max((s for _, s in best), default=1.0)
    lines = [_line(space, asked, one, skill, low, high) for one, skill in best]
    some = {n for n in asked if any(n not in one.answers for one, _ in best)}
    axes = [_axis(i, n, space.choices[n], whole=n not in some) for i, n in enumerate(asked)]
    axes.append(_skill_axis(len(asked), low, high))
    size = f'viewBox="0 0 {width + 60} {HIGH + 2 * TOP}"'
    return f'<svg class="parallel" {size}>{"".join(lines)}{"".join(axes)}</svg>'


def height(choice: Choice, answer: object) -> float:
    """Where an answer lies on its axis, from 0 to 1; ``ABSENT`` where there is none."""
    if answer is None:
        return ABSENT
    if isinstance(choice, Choose):
        return (choice.labels.index(str(answer)) + 1) / (len(choice.labels) + 0.5)
    number = float(str(answer))
    if choice.log:
        return math.log(number / choice.low) / math.log(choice.high / choice.low)
    return (number - choice.low) / (choice.high - choice.low)


def _line(
    space: Space, asked: Sequence[str], one: Record, skill: float, low: float, high: float
) -> str:
    share = (skill - low) / (high - low) if high > low else 1.0
    heights = [height(space.choices[name], one.answers.get(name)) for name in asked]
    points = " ".join(f"{_x(i):.0f},{_y(h):.1f}" for i, h in enumerate([*heights, share]))
    told = "; ".join(f"{name} = {value}" for name, value in one.answers.items())
    colour = f"hsl({240 - 240 * share:.0f} 75% 45%)"
    title = f"<title>{escape(f'trial {one.number}: skill {skill:.3f}; {told}')}</title>"
    return f'<polyline points="{points}" stroke="{colour}">{title}</polyline>'


def _axis(index: int, name: str, choice: Choice, *, whole: bool) -> str:
    if isinstance(choice, Choose):
        marks = [(height(choice, label), label) for label in choice.labels]
    else:
        marks = [(0.0, f"{choice.low:g}"), (1.0, f"{choice.high:g}")]
    return _drawn(index, name, marks if whole else [(ABSENT, "not asked"), *marks])


def _skill_axis(index: int, low: float, high: float) -> str:
    return _drawn(index, "mean skill", [(0.0, f"{low:.2f}"), (1.0, f"{high:.2f}")])


def _drawn(index: int, name: str, marks: Sequence[tuple[float, str]]) -> str:
    x = _x(index)
    lift = 18 if index % 2 else 34
    parts = [
        f'<line x1="{x}" x2="{x}" y1="{_y(0)}" y2="{_y(1)}"/>',
        f'<text class="axis" x="{x}" y="{TOP - lift}">{escape(name)}</text>',
    ]
    parts += [f'<text x="{x + 4}" y="{_y(at):.1f}">{escape(label)}</text>' for at, label in marks]
    return "".join(parts)


def _x(index: int) -> int:
    return MARGIN + WIDE * index


def _y(share: float) -> float:
    return TOP + HIGH * (1 - share)
