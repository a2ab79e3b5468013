"""Effects of axes as Markdown and as pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from mnemic.search.report.effects import Contrast, Effects, Interaction
from mnemic.search.report.figures import svg
from mnemic.search.study.scores import Interval

MOST = 25
"""Interactions that are shown, the largest."""


def page(
    found: Effects, sources: Sequence[str], pictures: Sequence[str] = (), trained: str = ""
) -> str:
    """Return the effects as Markdown.

    Args:
        found: the effects to show.
        sources: the places that the points come from.
        pictures: the paths of images to show.
        trained: what the points were trained on.
    """
    parts = [_head(found, sources, trained), *(f"![{_alt(path)}]({path})" for path in pictures)]
    parts.append(_main(found.main))
    if found.importance:
        parts.append(_importance(found))
    parts.append(_interactions(found.interactions))
    parts.append("## What the data cannot tell\n\n" + _items(found.unknown))
    return "\n\n".join(parts) + "\n"


def _alt(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".svg").replace("-", " ")


def _head(found: Effects, sources: Sequence[str], trained: str) -> str:
    told = f", trained on {trained}" if trained else ""
    return (
        f"# Effects\n\nFrom {found.points} points in {', '.join(sources)}{told}. An effect is the "
        "mean difference of skill over matched pairs: points that agree on every axis but one, and "
        "on the block. ± is half of Student's 95 % interval over pairs, or over the seeds if there "
        "is a single pair. Bold: the interval excludes 0. Each interval is taken by itself, so of "
        "twenty changes that do nothing one is expected to be bold."
    )


def _main(found: Sequence[Contrast]) -> str:
    rows = [
        [one.axis, one.level, one.reference, _bold(one.size, one.sure), str(one.pairs)]
        for one in found
    ]
    head = ["axis", "level", "against", "skill", "pairs"]
    return "## Each axis by itself\n\n" + (_table(head, rows) if rows else "No matched pairs.")


def _importance(found: Effects) -> str:
    rows = [[axis, f"{share:.3f}"] for axis, share in found.importance.items()]
    return (
        "## Importance\n\nThe share of each axis by functional ANOVA (PED-ANOVA, Watanabe et al. "
        "2023, as Optuna has it): how well it separates the best tenth of the points from all. A "
        "sampler that learns draws good points more often, so this describes what was drawn, not "
        "the whole space.\n\n" + _table(["axis", "share"], rows)
    )


def _interactions(found: Sequence[Interaction]) -> str:
    rows = [
        [*one.axes, *one.changes, _bold(one.size, one.sure), str(one.squares)]
        for one in found[:MOST]
    ]
    head = ["axis", "other axis", "change", "other change", "skill", "squares"]
    told = (
        "## Pairs of axes\n\nHow much more a change does when the other is made too, over matched "
        "squares: four points that agree on every axis but two."
    )
    if len(found) > MOST:
        told += f" The largest {MOST} of {len(found)}."
    return f"{told}\n\n{_table(head, rows) if rows else 'No matched squares.'}"


def _bold(size: Interval, sure: bool) -> str:
    text = f"{size.mean:+.3f}" + (f" ± {size.half:.3f}" if math.isfinite(size.half) else "")
    return f"**{text}**" if sure and math.isfinite(size.half) else text


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def _items(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "Nothing is missing."


# -- pictures --------------------------------------------------------------------------------


def forest(found: Effects) -> str:
    """Return each axis's contrasts with their intervals as SVG."""
    rows = list(found.main)[::-1]
    figure = Figure(figsize=(8, 1 + 0.26 * max(1, len(rows))), layout="constrained")
    axis = figure.subplots()
    for place, one in enumerate(rows):
        half = one.size.half if math.isfinite(one.size.half) else 0.0
        axis.errorbar(one.size.mean, place, xerr=half, fmt="o", ms=4, capsize=2,
                      color="tab:blue" if one.sure and half else "tab:gray")  # fmt: skip
    axis.axvline(0, color="k", lw=0.8)
    axis.set_yticks(range(len(rows)), [f"{one.axis}: {one.level}"[:60] for one in rows], fontsize=7)
    axis.set(xlabel="difference of mean skill, all else equal")
    return svg(figure, "forest")


def crossed(found: Effects) -> str:
    """Return the largest interaction of each two axes as SVG, a square a pair."""
    names = sorted({name for one in found.interactions for name in one.axes})
    size = max(2.5, 0.5 * len(names) + 1.5)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axis = figure.subplots()
    grid = [[math.nan] * len(names) for _ in names]
    for one in found.interactions:
        i, j = names.index(one.axes[0]), names.index(one.axes[1])
        if math.isnan(grid[i][j]) or abs(one.size.mean) > abs(grid[i][j]):
            grid[i][j] = grid[j][i] = one.size.mean
    most = max((abs(one.size.mean) for one in found.interactions), default=1.0)
    drawn = axis.imshow(grid, cmap="RdBu", vmin=-most, vmax=most)
    axis.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    figure.colorbar(drawn, label="largest interaction of mean skill")
    return svg(figure, "crossed")
