"""A function of many memories, for a few of them at a time: what it makes stays in the cache."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .slices import keep_what_is_saved
from .transforms import transformed

ENTRIES = 2**18
"""Entries of the largest tensor that a call may make: 1 MiB in float32."""

CALL = 4
"""How many times as many a call of a compiled function may make: it has fewer of such tensors, and
more to do before it begins."""

Found = Tensor | tuple[Tensor, ...]
Function = Callable[..., Found]

_compiled: Counter[Function] = Counter()
"""How many `compiled_parts` are at work for a function, in the whole process: a layer under
checkpointing is computed again in the thread of the backward pass."""


@contextmanager
def compiled_parts(functions: Sequence[Function]) -> Iterator[None]:
    """Run functions under ``torch.compile`` while this lasts: a graph for each shape, in which the
    sequence's length is none."""
    keep_what_is_saved()
    _compiled.update(functions)
    try:
        yield
    finally:
        _compiled.subtract(functions)


@cache
def _graph(function: Function) -> Function:
    return torch.compile(function, dynamic=False)


def by_memory(function: Function, entries: int, *inputs: Tensor) -> Found:
    """Return function(*inputs), computed for slices of the first axis, that of the memories.

    The gradient computes each slice again, so that nothing between inputs and outputs is kept.
    Tensors without axes are the same for every slice. On other devices, in a graph and under
    transforms the function is called as it is; within `compiled_parts`, under torch.compile.

    Args:
        function: of tensors [M, ...], which treats each of the M memories by itself.
        entries: of the largest tensor that it makes, for one memory.
        inputs: its arguments.
    """
    device = inputs[0].device.type
    if torch.compiler.is_compiling() or transformed():
        return function(*inputs)
    graph = _graph(function) if _compiled[function] else None
    many = next(x.shape[0] for x in inputs if x.ndim)
    size = max(1, ENTRIES * (CALL if graph else 1) // max(1, entries))
    if graph:
        size = _even(many, size)
    if device != "cpu" or (size >= many and graph is None):
        return (graph or function)(*inputs)
    found: tuple[Tensor, ...] = _ByMemory.apply(function, graph or function, size, *inputs)
    return found if len(found) > 1 else found[0]


def _even(many: int, size: int) -> int:
    """Return the largest size up to ``size`` of slices that are all alike, as their graph is."""
    return next(even for even in range(min(many, size), 0, -1) if many % even == 0)


def _all(function: Function, *inputs: Tensor) -> tuple[Tensor, ...]:
    found = function(*inputs)
    return (found,) if isinstance(found, Tensor) else found


class _ByMemory(torch.autograd.Function):
    """Slices of the first axis, one after another, forward and backward, by a function that is as
    ``function`` and fast."""

    @staticmethod
    def forward(
        ctx: Any, function: Function, fast: Function, size: int, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*inputs)
        ctx.function, ctx.fast, ctx.size = function, fast, size
        slices = [_all(fast, *some) for some in _sliced(inputs, size)]
        return tuple(torch.cat(outputs) for outputs in zip(*slices, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, size = ctx.saved_tensors, ctx.size
        wanted = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():  # to be differentiated once more, which graphs are not
            outputs = _all(ctx.function, *inputs)
            return None, None, None, *_pulled(outputs, inputs, wanted, grads, again=True)
        found: list[list[Tensor | None]] = []
        for some, own in zip(_sliced(inputs, size), _sliced(grads, size), strict=True):
            leaves = [x.detach().requires_grad_(w) for x, w in zip(some, wanted, strict=True)]
            with torch.enable_grad():
                outputs = _all(ctx.fast, *leaves)
            found.append(_pulled(outputs, leaves, wanted, own, again=False))
        return None, None, None, *map(_joined, zip(*found, strict=True))


def _sliced(tensors: Any, size: int) -> list[tuple[Tensor, ...]]:
    many = next(x.shape[0] for x in tensors if x.ndim)
    count = -(-many // size)
    cut = [x.split(size) if x.ndim else (x,) * count for x in tensors]
    return list(zip(*cut, strict=True))


def _pulled(outputs: Any, inputs: Any, wanted: Any, grads: Any, *, again: bool) -> list[Any]:
    """Return the gradients at the inputs that are wanted, None at the others."""
    at = [x for x, w in zip(inputs, wanted, strict=True) if w]
    given = [(y, g) for y, g in zip(outputs, grads, strict=True) if y.requires_grad]
    if not at or not given:
        return [None] * len(wanted)
    ends, pulls = zip(*given, strict=True)
    told = iter(torch.autograd.grad(ends, at, pulls, create_graph=again, allow_unused=True))
    return [next(told) if w else None for w in wanted]


def _joined(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    if parts[0] is None:
        return None
    return torch.cat(parts) if parts[0].ndim else sum(parts)  # type: ignore[arg-type,return-value]
