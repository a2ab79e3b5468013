"""The chunk form against token loops written by hand (``benchmarks/reference_loop.py``)."""

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from mnemic.bench.report import Figure
from mnemic.bench.subject import Subject, ratio
from mnemic.errors import EnvironmentFailed

PACKAGE = Path(__file__).resolve().parents[1]
PLACES = (PACKAGE / "benchmarks", PACKAGE.parent / "benchmarks")
"""In an installed package; in a checkout."""


def figures() -> Iterator[Figure | str]:
    """Gated delta there and back, the Huber rule forwards."""
    loop = reference()
    gated = Subject.named("gated-deltanet")
    runs = {"chunk": gated.form("chunk"), "loop": loop.gated_delta}
    yield ratio("gated-deltanet, chunk over hand loop, forward", gated.forward(runs), 8)
    yield ratio("gated-deltanet, chunk over hand loop, forward+backward", gated.both(runs), 14)
    huber = Subject.named("huber-coordinate")
    runs = {"chunk": huber.form("chunk"), "loop": loop.huber}
    yield ratio("huber-coordinate, chunk over hand loop, forward", huber.forward(runs), 5)


@cache
def reference() -> ModuleType:
    """The module of the hand-written loops."""
    for folder in PLACES:
        path = folder / "reference_loop.py"
        found = importlib.util.spec_from_file_location("mnemic_reference_loop", path)
        if path.is_file() and found is not None and found.loader is not None:
            module = importlib.util.module_from_spec(found)
            found.loader.exec_module(module)
            return module
    raise EnvironmentFailed("benchmarks/reference_loop.py is not there: reinstall mnemic")
