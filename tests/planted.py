"""Files of tensors in which somebody has planted code."""

import os
from pathlib import Path
from typing import Any

import torch


class Planted:
    """What makes a folder where its pickle is believed."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.sign),)


def plant(path: Path, sign: Path, *, archive: bool = True) -> None:
    """Put a file in a place that makes the folder ``sign`` when a careless reader loads it.

    ``archive``: in torch's format of today; else in that of old.
    """
    content = {"format": 1, "state": Planted(sign)}
    torch.save(content, path, _use_new_zipfile_serialization=archive)
    torch.load(path, weights_only=False)
    sign.rmdir()  # it was made: the code is there
