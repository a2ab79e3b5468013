"""Pictures of what whole models came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mnemic.models.files import replacing

Line = tuple[Sequence[float], Sequence[float]]


def draw(
    path: Path, panels: Mapping[str, Mapping[str, Line]], axes: Sequence[dict[str, Any]]
) -> None:
    """Draw lines by name into panels side by side; one name has one colour in all.

    Args:
        path: of the PNG file.
        panels: by title the lines of each.
        axes: labels and scales of each panel, as matplotlib's ``Axes.set`` takes them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(panels), 4), layout="constrained")
    FigureCanvasAgg(figure)
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    for place, (title, lines), told in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), axes, strict=True
    ):
        for name, (x, y) in lines.items():
            black = names.index(name) == 0  # the first is what others are compared with
            colour = "black" if black else f"C{names.index(name) - 1}"
            place.plot(x, y, marker=".", color=colour, label=name, lw=2 if black else 1)
        place.set(title=title, **told)
        place.grid(alpha=0.3)
    figure.axes[0].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        figure.savefig(beside, format="png", dpi=100, metadata={"Software": "mnemic"})
