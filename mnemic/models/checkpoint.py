"""All that a training run needs to continue as if it had never stopped."""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mnemic.errors import UsageError
from mnemic.models.curve import Point
from mnemic.models.files import replacing

FORMAT = 1
DAMAGED = (pickle.UnpicklingError, RuntimeError, EOFError, OSError, LookupError, TypeError,
           ValueError, AttributeError)  # fmt: skip
"""What torch raises of files that are cut, changed, or hold more than tensors and plain data."""


@dataclass(frozen=True)
class Checkpoint:
    """A run after ``step`` steps.

    Args:
        step: steps done.
        seconds: of wall time until now, over all parts.
        identity: what must be the same to continue (options, task, metadata), plain data.
        model: the model's state dictionary.
        optimizer: the optimizer's.
        batches: the state of the training stream's generator, bytes.
        random: the state of torch's own generator, bytes.
        losses: of the steps since the last point.
        points: of the learning curve.
        level: of the task's curriculum.
    """

    step: int
    seconds: float
    identity: dict[str, Any]
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    batches: Tensor
    random: Tensor
    losses: list[float]
    points: list[Point]
    level: int = 0

    def save(self, path: Path) -> None:
        """Write the checkpoint beside ``path`` and rename it: never half a file."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content |= {"format": FORMAT, "points": [asdict(point) for point in self.points]}
        with replacing(path) as beside, beside.open("wb") as stream:
            try:
                torch.save(content, stream)
            except RuntimeError as error:  # torch's own, of an archive that it could not end
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read a checkpoint; only tensors and plain data are accepted, no code is run.

        Raises:
            UsageError: the file is not a checkpoint of ours.
        """
        wrong = UsageError(f"{path}: not a checkpoint of mnemic")
        with path.open("rb") as stream:
            try:
                content = torch.load(stream, map_location="cpu", weights_only=True)
            except DAMAGED as error:
                raise wrong from error
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise UsageError(f"{wrong}, or of another version of it")
        try:
            content["points"] = [Point(**point) for point in content["points"]]
            return cls(**content)
        except (LookupError, TypeError) as error:
            raise wrong from error
