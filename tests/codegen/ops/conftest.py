"""A process in which Triton interprets, which also finds the samples of operations."""

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mnemic.kernels.worker import INTERPRETING, worker

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Callable[..., Any]]:
    """Calls a function by its file where Triton interprets."""
    with worker(dict(INTERPRETING), HERE, HERE.parents[1]) as process:

        def call(function: Callable[..., Any], **arguments: Any) -> Any:
            return process.call(Path(inspect.getfile(function)), function.__name__, **arguments)

        yield call
