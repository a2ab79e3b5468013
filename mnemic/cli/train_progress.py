"""The progress of a training run: a bar on a terminal, a line an evaluation elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mnemic.cli.output import console

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from mnemic.models.curve import Point
    from mnemic.models.progress import Progress


@contextmanager
def shown(title: str, metric: str) -> Iterator["Progress"]:
    """A progress for `mnemic.models.train.train`, on standard error."""
    if not sys.stderr.isatty():
        yield Lines(metric)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[loss]}{task.fields[score]}", markup=False),
    )
    with Progress(*columns, console=console(stderr=True)) as bars:
        yield Bar(bars, title, metric)


class Bar:
    """A bar with the last batch's loss and the last held-out score."""

    def __init__(self, bars: "Bars", title: str, metric: str) -> None:
        self.bars, self.metric = bars, metric
        self.task = bars.add_task(title, total=None, loss="", score="")

    def start(self, steps: int, done: int) -> None:
        """Draw the bar."""
        self.bars.update(self.task, total=steps, completed=done)

    def step(self, done: int, loss: float) -> None:
        """Move the bar."""
        self.bars.update(self.task, completed=done, loss=f"loss {loss:.3f}")

    def evaluated(self, point: "Point") -> None:
        """Show the score."""
        self.bars.update(self.task, score=f", {self.metric} {point.score:.4g}")

    def end(self, stopped: str) -> None:
        """Nothing: the bar stays."""


class Lines:
    """A line at every evaluation."""

    def __init__(self, metric: str) -> None:
        self.metric = metric

    def start(self, steps: int, done: int) -> None:
        """Say where a resumed run goes on."""
        if done:
            self.say(f"resumed at step {done} of {steps}")

    def step(self, done: int, loss: float) -> None:
        """Nothing between evaluations."""

    def evaluated(self, point: "Point") -> None:
        """Say the step, the loss and the score."""
        self.say(f"step {point.step}: loss {point.loss:.4f}, {self.metric} {point.score:.4f}")

    def end(self, stopped: str) -> None:
        """Nothing: the result is told elsewhere."""

    def say(self, line: str) -> None:
        """One line."""
        print(line, file=sys.stderr, flush=True)
