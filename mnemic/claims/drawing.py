"""An outcome's panels as a picture: what is measured with its spread, what is printed dashed."""

import io
import math
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from mnemic.claims.outcome import Outcome, Panel

matplotlib.rcParams |= {"svg.hashsalt": "mnemic", "svg.fonttype": "none"}
COLUMNS, TICKS = 3, 8


def svg(found: Outcome) -> str:
    """Return the panels of an outcome as SVG."""
    count = len(found.panels)
    columns = min(COLUMNS, max(1, count))
    rows = -(-count // columns)
    figure = Figure(figsize=(4.4 * columns, 3.4 * rows + 0.3), layout="constrained")
    FigureCanvasSVG(figure)
    every = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, panel in zip(every, found.panels, strict=False):
        _draw(axes, panel)
    for axes in every[count:]:
        axes.set_axis_off()
    figure.suptitle(f"{found.claim}: {found.verdict}")
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _draw(axes: Any, panel: Panel) -> None:
    dashed = "k--" if sum(curve.printed for curve in panel.curves) == 1 else "s--"
    for curve in panel.curves:
        style = dashed if curve.printed else "o-"
        (line,) = axes.plot(curve.x, curve.y, style, ms=3, label=curve.label)
        if curve.spread and all(map(math.isfinite, curve.spread)):
            low = [y - s for y, s in zip(curve.y, curve.spread, strict=True)]
            high = [y + s for y, s in zip(curve.y, curve.spread, strict=True)]
            if "y" in panel.log:
                low = [max(x, 0.2 * y) for x, y in zip(low, curve.y, strict=True)]
            axes.fill_between(curve.x, low, high, alpha=0.2, color=line.get_color())
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    if "x" in panel.log:
        axes.set_xscale("log")
    at = sorted({x for curve in panel.curves for x in curve.x})
    if len(at) <= TICKS and all(x == round(x) for x in at):
        axes.set_xticks(at, [f"{x:g}" for x in at])
        axes.set_xticks([], minor=True)
    if "y" in panel.log:
        axes.set_yscale("log")
    elif all(0 <= y <= 1 for curve in panel.curves for y in curve.y):
        axes.set_ylim(-0.02, 1.05)  # shares, so that panels side by side have the same axis
    axes.legend(frameon=False, fontsize=8)
