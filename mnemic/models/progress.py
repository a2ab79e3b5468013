"""The callbacks of a training run, with which a command line can show a progress bar."""

from __future__ import annotations

from typing import Protocol

from mnemic.models.curve import Point


class Progress(Protocol):
    """Called by `mnemic.models.train.train` between steps.

    A KeyboardInterrupt raised here stops the run as Ctrl-C does: with a checkpoint.
    """

    def start(self, steps: int, done: int) -> None:
        """Begin the report: ``done`` of ``steps`` are completed (0 unless the run is resumed)."""

    def step(self, done: int, loss: float) -> None:
        """Report a step: the number completed, and the last batch's loss in nats."""

    def evaluated(self, point: Point) -> None:
        """Report that the model was scored on the held-out stream and saved."""

    def end(self, stopped: str) -> None:
        """Report the end and its reason: ``steps``, ``time``, ``target``, or ``interrupted``."""


class Silent:
    """A `Progress` that says nothing."""

    def start(self, steps: int, done: int) -> None:
        """Say nothing."""

    def step(self, done: int, loss: float) -> None:
        """Say nothing."""

    def evaluated(self, point: Point) -> None:
        """Say nothing."""

    def end(self, stopped: str) -> None:
        """Say nothing."""
