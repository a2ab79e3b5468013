"""A compiled spec verified on this machine, in a process that a faulty kernel may take down."""

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mnemic.codegen.support import versions
from mnemic.kernels.worker import COMPILING, INTERPRETING, LONGEST, Worker, worker

ONLY_INTERPRETED = (
    "no GPU here: the fused kernels were only interpreted, in float64 and float32 at small sizes, "
    "so form='auto' goes on without them"
)


WITHOUT_TRITON = "Triton is not installed, so the fused kernels were not tried"


SECONDS = 120.0
"""Seconds of trials without a GPU, unless told: where a step is a root, a chunk of 16 rows is
up to 15 sweeps of 30 steps of dozens of operations on tiles, each of which is interpreted."""


def note(place: str) -> str:
    """Return a remark on fused kernels on a device; empty where they ran as they are."""
    if versions.installed() is None:
        return WITHOUT_TRITON
    return "" if place == "cuda" else ONLY_INTERPRETED


def device() -> str:
    """Return where to verify: ``cuda`` where there is a GPU, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def processes(place: str) -> int:
    """Return how many processes share out the trials by default: without a GPU one, since trials
    end when time runs out."""
    return min(8, max(1, (os.cpu_count() or 1) // 2)) if place == "cuda" else 1


def verify_folder(
    folder: str, rule_hash: str, device: str, seconds: float | None
) -> dict[str, Any]:
    """Verify a compiled folder in this process; return the entry, written beside it.

    What is tried is said on standard error.
    """
    found = verify_share(folder, device, seconds, 0, 1)
    return write_entry(folder, rule_hash, device, [found])


def verify_share(
    folder: str, device: str, seconds: float | None, number: int, of: int
) -> dict[str, Any]:
    """Make a compiled folder's trials from the ``number``-th, every ``of``-th; as plain data."""
    layer, verify = _loaded(folder)
    name = layer.rule.name + (" (interpreted)" if versions.interpreting() else "")
    told = f"{name}, process {number + 1}" if of > 1 else name
    found = verify.share(
        layer, device=device, number=number, of=of, seconds=seconds, trying=verify.spoken(told)
    )
    return {"findings": list(map(asdict, found.findings)), "left": list(found.left)}


def write_entry(
    folder: str, rule_hash: str, device: str, shares: list[dict[str, Any]]
) -> dict[str, Any]:
    """Write the entry of all shares beside the code, and return it."""
    layer, verify = _loaded(folder)
    found = [
        verify.Found(
            tuple(verify.Finding(**one) for one in share["findings"]), tuple(share["left"])
        )
        for share in shares
    ]
    entry: dict[str, Any] = verify.recorded(layer, found, device=device, rule_hash=rule_hash)
    return entry


def _loaded(folder: str) -> tuple[Any, Any]:
    """Load the layer of a compiled folder, and its checks."""
    from mnemic.codegen import package

    module = package.load(Path(folder))
    return module.Layer, package.support(module, "verify")


def entries(
    folder: Path, rule_hash: str, place: str, seconds: float | None = None, processes: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield the entries of a folder on a device; on the CPU interpreted kernels have their own.

    ``processes`` share out the trials, most of whose time goes into compiling kernels. ``seconds``
    are what each may take before it leaves trials out. Raises ``CheckFailed`` and
    ``EnvironmentFailed`` where a process could not tell.
    """
    longest = math.inf if seconds is None else LONGEST + seconds
    alone = place == "cuda" or versions.installed() is None
    kinds = (COMPILING,) if alone else (COMPILING, INTERPRETING)
    for kind in kinds:
        with ExitStack() as stack:
            started = [stack.enter_context(worker(kind)) for _ in range(processes)]

            def shared(number: int, started: list[Worker] = started) -> dict[str, Any]:
                found: dict[str, Any] = started[number].call(
                    __name__, "verify_share", timeout=longest, folder=str(folder), device=place,
                    seconds=seconds, number=number, of=len(started),
                )  # fmt: skip
                return found

            with ThreadPoolExecutor(processes) as threads:
                shares = list(threads.map(shared, range(processes)))
            entry = started[0].call(
                __name__, "write_entry", folder=str(folder), rule_hash=rule_hash, device=place,
                shares=shares,
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
    """Yield the lines of an entry, form by form and dtype by dtype."""
    suffix = " (interpreted)" if entry["interpreted"] else ""
    for form, dtypes in entry["forms"].items():
        for dtype, told in dtypes.items():
            errors = {n: e for n, e in told["errors"].items() if e is not None}
            part = max(errors, key=errors.__getitem__, default="")
            worst = f"{errors[part]:.1e} {part}" if part else ""
            yield Line(form + suffix, dtype, told["passed"], worst, tuple(told["wrong"]),
                       told["not compared"])  # fmt: skip
