"""Two processes for the tests of kernels: one interprets, one compiles.

``interpreter(function, **arguments)`` calls a function of the test's own file, at its top level, in
a process with ``TRITON_INTERPRET=1`` and poisoned buffers; arguments and result are JSON. What is
raised there fails the test here. A process lives as long as the session, since to import torch and
to compile Triton's own functions costs seconds; a kernel that kills it fails its own test, and the
next test starts another.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mnemic.kernels.worker import COMPILING, INTERPRETING, worker

sys.path.insert(0, str(Path(__file__).parent))

from processes import PATHS, Call

sys.path[:0] = map(str, PATHS)


def _calls(environment: dict[str, str]) -> Iterator[Call]:
    with worker(environment, *PATHS) as process:

        def call(function: Call, **arguments: Any) -> Any:
            place = Path(inspect.getfile(function))
            return process.call(place, function.__name__, **arguments)

        yield call


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Call]:
    """Calls a function of the test's file where Triton interprets."""
    yield from _calls(dict(INTERPRETING))


@pytest.fixture(scope="session")
def compiler() -> Iterator[Call]:
    """Calls a function of the test's file where Triton compiles, without a device."""
    yield from _calls(dict(COMPILING))
