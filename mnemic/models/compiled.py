"""A model's pass under torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import InductorError

from mnemic.errors import EnvironmentFailed

T = TypeVar("T")


def compiled(function: Callable[..., T]) -> Callable[..., T]:
    """Return a function that does the same under ``torch.compile``: a graph for each shape.

    The first call of a shape takes minutes where the layers loop over chunks; what it compiles is
    kept on the machine, so that later programs take a part of that. On a CPU it needs a C++
    compiler.

    Raises:
        EnvironmentFailed: when called: nothing can be compiled on this machine; with the reason.
    """
    faster = torch.compile(function, dynamic=False)

    def call(*inputs: object) -> T:
        try:
            return faster(*inputs)
        except (TorchDynamoException, InductorError) as error:
            reason = str(error).strip().splitlines()[0]
            raise EnvironmentFailed(
                f"torch.compile fails on this machine: {reason} (train without --compile)"
            ) from error

    return call
