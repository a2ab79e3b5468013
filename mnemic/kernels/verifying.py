"""A compiled spec verified on this machine, in a process that a faulty kernel may take down."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemic.codegen.support import versions
from mnemic.kernels.worker import COMPILING, INTERPRETING, LONGEST, worker

ONLY_INTERPRETED = (
    "no GPU here: the fused kernels were only interpreted, in float64 and float32 at small sizes, "
    "so form='auto' goes on without them"
)


WITHOUT_TRITON = "Triton is not installed, so the fused kernels were not tried"


SECONDS = 120.0
"""What may be tried for without a GPU, unless told: where a step is a root, a chunk of 16 rows is
up to 15 sweeps of 30 steps of dozens of operations on tiles, each of which is interpreted."""


def note(place: str) -> str:
    """Return what is to say of fused kernels on a device; empty where they ran as they are."""
    if versions.installed() is None:
        return WITHOUT_TRITON
    return "" if place == "cuda" else ONLY_INTERPRETED


def device() -> str:
    """Where to verify."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def verify_folder(
    folder: str, rule_hash: str, device: str, seconds: float | None
) -> dict[str, Any]:
    """Verify a compiled folder in this process; the entry that was written beside it.

    What is tried is said on standard error.
    """
    from mnemic.codegen import package

    module = package.load(Path(folder))
    verify = package.support(module, "verify")
    name = module.rule.name + (" (interpreted)" if versions.interpreting() else "")
    entry: dict[str, Any] = verify.run(
        module.Layer, device=device, rule_hash=rule_hash, seconds=seconds,
        trying=verify.spoken(name),
    )  # fmt: skip
    return entry


def entries(
    folder: Path, rule_hash: str, place: str, seconds: float | None = None
) -> Iterator[dict[str, Any]]:
    """The entries of a folder on a device; on the CPU interpreted kernels have one of their own.

    ``seconds`` are what each may take before it leaves trials out. Raises ``CheckFailed`` and
    ``EnvironmentFailed`` where the process could not tell.
    """
    longest = math.inf if seconds is None else LONGEST + seconds
    alone = place == "cuda" or versions.installed() is None
    kinds = (COMPILING,) if alone else (COMPILING, INTERPRETING)
    for kind in kinds:
        with worker(kind) as process:
            entry = process.call(
                __name__, "verify_folder", timeout=longest, folder=str(folder),
                rule_hash=rule_hash, device=place, seconds=seconds,
            )  # fmt: skip
        if entry["forms"]:
            yield entry


@dataclass(frozen=True)
class Line:
    """What became of one form in one dtype."""

    form: str
    dtype: str
    passed: bool
    worst: str
    wrong: tuple[str, ...]
    not_compared: int


def lines(entry: dict[str, Any]) -> Iterator[Line]:
    """An entry, form by form and dtype by dtype."""
    suffix = " (interpreted)" if entry["interpreted"] else ""
    for form, dtypes in entry["forms"].items():
        for dtype, told in dtypes.items():
            errors = {n: e for n, e in told["errors"].items() if e is not None}
            part = max(errors, key=errors.__getitem__, default="")
            worst = f"{errors[part]:.1e} {part}" if part else ""
            yield Line(form + suffix, dtype, told["passed"], worst, tuple(told["wrong"]),
                       told["not compared"])  # fmt: skip
