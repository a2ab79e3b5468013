"""A compiled spec tuned on this machine, in a process that a faulty kernel may take down."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mnemic.errors import UsageError
from mnemic.kernels.worker import COMPILING, worker

DTYPES = ("bfloat16", "float16", "float32")
PURPOSES = ("forward", "training", "decode")

LONGEST = 6 * 3600.0
"""Seconds that tuning may take: each cut is compiled anew."""


@dataclass(frozen=True)
class Wanted:
    """The shape to tune for; ``dtype`` is that of the vectors.

    Raises ``UsageError`` for a dtype that kernels do not take.
    """

    batch: int
    tokens: int
    heads: int
    key: int
    value: int
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype: read '{self.dtype}', allowed: {', '.join(DTYPES)}")


def purposes(words: Sequence[str]) -> tuple[str, ...]:
    """Return what to tune for; all where nothing is said.

    Raises ``UsageError`` for a word that is none of them.
    """
    for word in words:
        if word not in PURPOSES:
            raise UsageError(f"for: read '{word}', allowed: {', '.join(PURPOSES)}")
    return tuple(dict.fromkeys(words)) or PURPOSES


def tune_folder(folder: str, shape: dict[str, Any], purposes: list[str]) -> dict[str, Any]:
    """Tune a compiled folder in this process; return its report, and that in words."""
    import torch

    from mnemic.codegen import package

    module = package.load(Path(folder))
    tune, shapes = (package.support(module, n) for n in ("tune", "shapes"))
    wanted = shapes.Shape(**{**shape, "dtype": getattr(torch, shape["dtype"])})
    report: dict[str, Any] = tune.run(module.Layer, wanted, purposes=tuple(purposes))
    return {**report, "lines": [*tune.lines(report)], "none right": [*tune.none_right(report)]}


def tuned(folder: Path, wanted: Wanted, purposes: tuple[str, ...]) -> dict[str, Any]:
    """Tune a folder on this machine in a process of its own, and return the report.

    Raises ``CheckFailed`` and ``EnvironmentFailed`` where the process could not tell.
    """
    with worker(COMPILING) as process:
        found: dict[str, Any] = process.call(
            __name__, "tune_folder", timeout=LONGEST, folder=str(folder), shape=asdict(wanted),
            purposes=list(purposes),
        )  # fmt: skip
    return found
