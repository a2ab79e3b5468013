"""A compiled spec verified on this machine, in a process that a faulty kernel may take down."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from mnemic.kernels.worker import COMPILING, INTERPRETING, worker

ONLY_INTERPRETED = (
    "no GPU here: the fused kernels were only interpreted, in float64 and float32 at small sizes, "
    "so form='auto' goes on without them"
)


def device() -> str:
    """Where to verify."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def verify_folder(folder: str, rule_hash: str, device: str) -> dict[str, Any]:
    """Verify a compiled folder in this process; the entry that was written beside it."""
    from mnemic.codegen import package

    module = package.load(Path(folder))
    verify = import_module(f"{module.__name__}.support.verify")
    entry: dict[str, Any] = verify.run(module.Layer, device=device, rule_hash=rule_hash)
    return entry


def entries(folder: Path, rule_hash: str, place: str) -> Iterator[dict[str, Any]]:
    """The entries of a folder on a device; on the CPU interpreted kernels have one of their own.

    Raises ``CheckFailed`` and ``EnvironmentFailed`` where the process could not tell.
    """
    kinds = (COMPILING,) if place == "cuda" else (COMPILING, INTERPRETING)
    for kind in kinds:
        with worker(kind) as process:
            entry = process.call(
                __name__, "verify_folder", folder=str(folder), rule_hash=rule_hash, device=place
            )
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
