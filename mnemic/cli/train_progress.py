"""The progress of a training run: a bar on a terminal, a line an evaluation elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mnemic.cli.output import console

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from mnemic.models.curve import Point
    from mnemic.models.progress import Progress

WIDE_ENOUGH = 110
"""Columns of a terminal that has room for a long bar and the time so far."""


@contextmanager
def shown(title: str, metric: str, tokens: int = 0) -> Iterator["Progress"]:
    """Show the progress of a training run on standard error.

    Args:
        title: of the bar.
        metric: the score's name.
        tokens: of a step, to tell how many a second are learned from; 0 does not.
    """
    pace = Pace(tokens)
    if not sys.stderr.isatty():
        yield Lines(metric, pace)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    screen = console(stderr=True)
    wide = screen.width >= WIDE_ENOUGH
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=40 if wide else 6),
        MofNCompleteColumn(),
        *((TimeElapsedColumn(),) if wide else ()),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn("{task.fields[loss]}{task.fields[score]}", markup=False),
    )
    with Progress(*columns, console=screen) as bars:
        yield Bar(bars, title, metric, pace)


class Pace:
    """How fast a run goes: tokens a second since it began, and the time left."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.began = time.monotonic()
        self.first = self.done = self.steps = 0

    def start(self, steps: int, done: int) -> None:
        """Count time and tokens from here."""
        self.began, self.steps, self.first, self.done = time.monotonic(), steps, done, done

    def __str__(self) -> str:
        seconds, steps = time.monotonic() - self.began, self.done - self.first
        if not self.tokens or not steps:
            return ""
        left = seconds / steps * (self.steps - self.done)
        return f", {self.tokens * steps / seconds:,.0f} tokens/s, {left:.0f} s left"


def to_go_on(pace: Pace) -> str:
    """Return what to tell of a run that was saved because it was interrupted."""
    return f"saved at step {pace.done} of {pace.steps}: the same command with --resume goes on"


class Bar:
    """A bar with the last batch's loss and the last held-out score."""

    def __init__(self, bars: "Bars", title: str, metric: str, pace: Pace) -> None:
        self.bars, self.metric, self.pace = bars, metric, pace
        self.task = bars.add_task(title, total=None, loss="", score="")

    def start(self, steps: int, done: int) -> None:
        """Draw the bar."""
        self.pace.start(steps, done)
        self.bars.update(self.task, total=steps, completed=done)

    def step(self, done: int, loss: float) -> None:
        """Move the bar, and show the last batch's loss."""
        self.pace.done = done
        self.bars.update(self.task, completed=done, loss=f"loss {loss:.3f}{self.pace}")

    def evaluated(self, point: "Point") -> None:
        """Show the score."""
        self.bars.update(self.task, score=f", {self.metric} {point.score:.4g}")

    def end(self, stopped: str) -> None:
        """Leave the bar; say how an interrupted run goes on."""
        if stopped == "interrupted":
            self.bars.print(to_go_on(self.pace))


class Lines:
    """A line at every evaluation."""

    def __init__(self, metric: str, pace: Pace) -> None:
        self.metric, self.pace = metric, pace

    def start(self, steps: int, done: int) -> None:
        """Say where a resumed run goes on."""
        self.pace.start(steps, done)
        if done:
            self.say(f"resumed at step {done} of {steps}")

    def step(self, done: int, loss: float) -> None:
        """Count the step; nothing is said between evaluations."""
        self.pace.done = done

    def evaluated(self, point: "Point") -> None:
        """Say the step, the loss and the score."""
        told = f"step {point.step}: loss {point.loss:.4f}, {self.metric} {point.score:.4f}"
        self.say(f"{told}{self.pace}")

    def end(self, stopped: str) -> None:
        """Say how an interrupted run goes on; any other result is told elsewhere."""
        if stopped == "interrupted":
            self.say(to_go_on(self.pace))

    def say(self, line: str) -> None:
        """Print a line on standard error, at once."""
        print(line, file=sys.stderr, flush=True)
