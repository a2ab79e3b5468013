"""From the shell to a checked spec, and from a spec to its operator."""

import tempfile
from collections.abc import Iterator

from mnemic.bench.processes import python
from mnemic.bench.report import Figure
from mnemic.bench.timing import side_by_side

SPEC = "gated-deltanet"
PROGRAM = f"""
import time, torch
began = time.perf_counter()
import mnemic
mnemic.compile({SPEC!r}).operator
print(time.perf_counter() - began)
"""


def figures() -> Iterator[Figure | str]:
    """Time `mnemic check`, and compiling a spec cold and from the cache."""
    check = side_by_side({"check": lambda: python("-m", "mnemic", "check", SPEC)})["check"]
    yield Figure(f"mnemic check {SPEC}, wall", check, "s", most=0.6)
    cold, cached = zip(*(_compiled() for _ in range(2)), strict=True)
    yield Figure("spec to operator, cold (torch imported)", min(cold), "s", SPEC, most=3)
    yield Figure("spec to operator, cached (torch imported)", min(cached), "s", SPEC, most=0.2)


def _compiled() -> tuple[float, float]:
    """Return the seconds of compiling with an empty cache, and again from the cache."""
    with tempfile.TemporaryDirectory() as folder:
        place = {"MNEMIC_CACHE": folder}
        cold = float(python("-c", PROGRAM, environment=place))
        return cold, min(float(python("-c", PROGRAM, environment=place)) for _ in range(3))
