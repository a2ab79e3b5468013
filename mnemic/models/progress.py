"""How a training run tells what it does, so that a command line can show a bar."""

from __future__ import annotations

from typing import Protocol

from mnemic.models.curve import Point


class Progress(Protocol):
    """Called by `mnemic.models.train.train` between steps.

    A KeyboardInterrupt raised here stops the run as Ctrl-C does: with a checkpoint.
    """

    def start(self, steps: int, done: int) -> None:
        """Hear that the run begins: of ``steps``, ``done`` are behind it (0 unless resumed)."""

    def step(self, done: int, loss: float) -> None:
        """Hear that ``done`` steps are behind the run, and the last batch's loss, in nats."""

    def evaluated(self, point: Point) -> None:
        """Hear that the model was scored on the held-out stream and saved."""

    def end(self, stopped: str) -> None:
        """Hear why the run is over: ``steps``, ``time``, ``target``, or ``interrupted``."""


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
