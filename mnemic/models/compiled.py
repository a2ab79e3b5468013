"""Steps under torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import InductorError

from mnemic.errors import EnvironmentFailed
from mnemic.models.language_model import LanguageModel
from mnemic.models.parts import rules_with_parts
from mnemic.models.train_options import TrainOptions

P = ParamSpec("P")
T = TypeVar("T")
Hidden = Callable[[Tensor], tuple[Tensor, Any]]

SHORT = 1000
"""Steps from which on whole graphs are compiled where parts could be."""


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that does the same under ``torch.compile``: a graph for each shape.

    The first call with a shape takes minutes where the layers loop over chunks; the compiled code
    is cached on the machine, so that later programs need less. On a CPU it needs a C++ compiler.
    Call it, and differentiate its result, within `told_where_it_fails`.
    """
    return torch.compile(function, dynamic=False)


def compiled_hidden(model: LanguageModel, options: TrainOptions) -> Hidden:
    """Return ``model.hidden`` for training under ``torch.compile``, whole or in parts.

    On a CPU, for fewer than `SHORT` steps, only the parts of chunks that compute a matrix for every
    row are compiled, where the model's rules have such parts: a few graphs, for the first chunk,
    the others and a shorter last one, which takes about a minute, and some seconds in later
    programs. Otherwise it does the same as `compiled`.
    """
    rules = rules_with_parts(model)
    on_cpu = torch.device(options.device).type == "cpu"
    if not (rules and on_cpu and options.steps < SHORT):
        return compiled(model.hidden)

    def in_parts(tokens: Tensor) -> tuple[Tensor, Any]:
        with ExitStack() as stack:
            for rule in rules:
                stack.enter_context(rule.compiled_parts())
            return model.hidden(tokens)

    return in_parts


@contextmanager
def told_where_it_fails() -> Iterator[None]:
    """Turn failures of ``torch.compile`` in this block, forward or backward, into one clear error.

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
