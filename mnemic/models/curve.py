"""The learning curve: its points, as a table and as a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from mnemic.models.files import replacing


@dataclass(frozen=True)
class Point:
    """The state of a run at an evaluation.

    Args:
        step: steps done.
        seconds: of wall time, over all resumed parts, evaluations included.
        loss: in nats for each scored position, the mean over the batches since the last point.
        score: the task's metric on the held-out stream.
        rate: the learning rate of the last step.
    """

    step: int
    seconds: float
    loss: float
    score: float
    rate: float


def write_table(path: Path, points: Sequence[Point]) -> None:
    """Write the points as comma-separated values with a header."""
    table = io.StringIO()
    writer = csv.DictWriter(table, [f.name for f in fields(Point)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(point) for point in points)
    with replacing(path) as beside:
        beside.write_text(table.getvalue(), encoding="utf-8")


def drawable() -> bool:
    """Return whether matplotlib is installed; a run without it is the same but for its picture."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def draw(path: Path, points: Sequence[Point], metric: str, chance: float, title: str) -> None:
    """Draw loss and held-out score over the steps into a PNG file.

    Args:
        path: of the picture.
        points: in the order of their steps.
        metric: the score's name.
        chance: the score of a guess, drawn as a line.
        title: of the picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    score, loss = figure.subplots(1, 2)
    steps = [point.step for point in points]
    score.plot(steps, [point.score for point in points], marker=".")
    score.axhline(chance, color="grey", linestyle=":", label="chance")
    score.set(xlabel="step", ylabel=f"held-out {metric}")
    score.legend()
    loss.plot(steps, [point.loss for point in points], marker=".", color="tab:orange")
    loss.set(xlabel="step", ylabel="training loss (nats)")
    figure.suptitle(title)
    with replacing(path) as beside:
        figure.savefig(beside, format="png", dpi=120, metadata={"Software": "mnemic"})
