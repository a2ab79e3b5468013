"""The chunk form against token loops written by hand (``benchmarks/reference_loop.py``).

The goals are for the loops as the papers write the rules; the same arithmetic on row vectors,
which a CPU runs several times faster, stands beside them without a goal.
"""

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from mnemic.bench.report import Figure
from mnemic.bench.subject import Run, Subject, ratio
from mnemic.errors import EnvironmentFailed

PACKAGE = Path(__file__).resolve().parents[1]
PLACES = (PACKAGE / "benchmarks", PACKAGE.parent / "benchmarks")
"""Folders of the hand-written loops: in an installed package, in a checkout."""


def figures() -> Iterator[Figure | str]:
    """Time gated delta, forward and with backward, and the Huber rule, forward, against loops."""
    loop = reference()
    yield from _compared("gated-deltanet", "loop", loop.gated_delta, (8, 14))
    yield from _compared("gated-deltanet", "loop on rows", loop.gated_delta_rows, (None, None))
    yield from _compared("huber-coordinate", "loop", loop.huber, (5,))
    yield from _compared("huber-coordinate", "loop on rows", loop.huber_rows, (None,))


def _compared(
    name: str, label: str, loop: Run, goals: tuple[float | None, ...]
) -> Iterator[Figure]:
    subject = Subject.named(name)
    runs = {"chunk": subject.form("chunk"), label: loop}
    ways = (("forward", subject.forward), ("forward+backward", subject.both))
    for (way, measure), goal in zip(ways, goals, strict=False):
        yield ratio(f"{name}, chunk over hand {label}, {way}", measure(runs), goal)


@cache
def reference() -> ModuleType:
    """Load the module of the hand-written loops."""
    for folder in PLACES:
        path = folder / "reference_loop.py"
        found = importlib.util.spec_from_file_location("mnemic_reference_loop", path)
        if path.is_file() and found is not None and found.loader is not None:
            module = importlib.util.module_from_spec(found)
            found.loader.exec_module(module)
            return module
    raise EnvironmentFailed("benchmarks/reference_loop.py is not there: reinstall mnemic")
