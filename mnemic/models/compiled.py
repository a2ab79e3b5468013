"""Steps under torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import InductorError

from mnemic.errors import EnvironmentFailed

P = ParamSpec("P")
T = TypeVar("T")


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that does the same under ``torch.compile``: a graph for each shape.

    The first call of a shape takes minutes where the layers loop over chunks; what it compiles is
    kept on the machine, so that later programs take a part of that. On a CPU it needs a C++
    compiler. To be called, and differentiated, within `told_where_it_fails`.
    """
    return torch.compile(function, dynamic=False)


@contextmanager
def told_where_it_fails() -> Iterator[None]:
    """Say that ``torch.compile`` fails on this machine where it does, forward or backward.

    Raises:
        EnvironmentFailed: nothing can be compiled here, with the reason.
    """
    try:
        yield
    except (TorchDynamoException, InductorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise EnvironmentFailed(
            f"torch.compile fails on this machine: {reason} (train without --compile, or without "
            "'compile: true' in the space)"
        ) from error
