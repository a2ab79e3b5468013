"""The result of a training run."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from mnemic.models.contract import Task
from mnemic.models.files import write_json
from mnemic.models.train_options import TrainOptions

NAME = "result.json"


@dataclass(frozen=True)
class Result:
    """The result of a run, and everything needed to repeat it.

    Args:
        metric: the score's name.
        score: on the held-out stream at the last evaluation; None before the first one.
        chance, ceiling: the scores of a guess, and of the best model (or a bound on it).
        loss: of the last evaluation's interval, in nats; None before the first one.
        steps: done.
        seconds: of wall time, over all parts, evaluations included.
        stopped: ``steps``, ``time``, ``target``, or ``interrupted``.
        parameters: of the model, tied ones once.
        task: its name, options and facts.
        options: of the training.
        metadata: what the caller passed in: the spec's hash, say.
        versions: of Python, torch and mnemic, and the kind of machine.
    """

    metric: str
    score: float | None
    chance: float
    ceiling: float
    loss: float | None
    steps: int
    seconds: float
    stopped: str
    parameters: int
    task: dict[str, Any]
    options: TrainOptions
    metadata: dict[str, Any]
    versions: dict[str, str]

    def write(self, folder: Path) -> None:
        """Write ``result.json`` into a folder."""
        write_json(folder / NAME, asdict(self) | {"seed": self.options.seed})


def described(task: Task) -> dict[str, Any]:
    """Return a task as plain data: name, options, facts; of one's own the file's SHA-256 too."""
    told = {"name": task.name, "options": asdict(task.options), "facts": task.facts}
    return told | ({"digest": task.digest} if task.digest else {})


def versions() -> dict[str, str]:
    """Return what the numbers may depend on besides the options: versions and the machine."""
    try:
        own = version("mnemic")
    except PackageNotFoundError:
        own = "not installed"
    machine = f"{platform.system()} {platform.machine()}"
    return {
        "mnemic": own,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": machine,
    }


def plain(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the caller's metadata as a dictionary, empty if there is none."""
    return dict(metadata or {})
