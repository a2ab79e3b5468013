"""Calls of a function for a few memories at a time, so that temporaries stay in the cache."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from .kept_graphs import Graph, pulled
from .slices import keep_what_is_saved
from .transforms import transformed

ENTRIES = 2**18
"""Entries of the largest tensor that a call may make: 1 MiB in float32."""

CALL = 4
"""How many times ``ENTRIES`` a call of a compiled function may make: it holds fewer such tensors at
once, and each call costs more."""

SHAPES = 64
"""Graphs of a function, for its shapes and for what of its arguments has a gradient; torch's own
limit of 8 would be met by a few lengths of a sequence's last chunk."""

Found = Tensor | tuple[Tensor, ...]
Function = Callable[..., Found]

_compiled: Counter[Function] = Counter()
"""How many `compiled_parts` are at work for a function, in all threads: under checkpointing a layer
is computed again in the thread of the backward pass."""

_counting = Lock()


@contextmanager
def compiled_parts(functions: Sequence[Function]) -> Iterator[None]:
    """Run functions under ``torch.compile`` while this context lasts, in the whole process.

    A function has a graph for each shape of its arguments, which depends on the length of a chunk
    and not on that of the sequence. With activation checkpointing the backward pass must lie within
    the context as well.
    """
    keep_what_is_saved()
    with _counting:
        _compiled.update(functions)
    try:
        yield
    finally:
        with _counting:
            _compiled.subtract(functions)


@cache
def _graph(function: Function) -> Function:
    made: Any = torch.compile  # whose types leave out the limit
    graph: Function = made(function, dynamic=False, recompile_limit=SHAPES)
    return graph


def by_memory(function: Function, entries: int, *inputs: Tensor) -> Found:
    """Return function(*inputs), computed for slices of the first axis, that of the memories.

    Intermediate results are kept for the gradient as far as `kept_graphs` has room; for the other
    slices the gradient computes them again. Tensors without axes are the same for every slice. On
    devices other than a CPU, in a graph and under transforms the function is called as it is;
    within `compiled_parts` it runs under torch.compile, in slices on every device.

    Args:
        function: of tensors [M, ...], which treats each of the M memories by itself.
        entries: of the largest tensor that it makes, for one memory.
        inputs: its arguments.
    """
    if torch.compiler.is_compiling() or transformed():
        return function(*inputs)
    many = next(x.shape[0] for x in inputs if x.ndim)
    graph = _graph(function) if many and _compiled[function] > 0 else None
    size = many
    if inputs[0].device.type == "cpu":
        size = max(1, ENTRIES * (CALL if graph else 1) // max(1, entries))
    if graph is None and size >= many:
        return function(*inputs)
    if graph:
        size = _even(many, size)
    found: tuple[Tensor, ...] = _ByMemory.apply(function, graph or function, size, *inputs)
    return found if len(found) > 1 else found[0]


def _even(many: int, size: int) -> int:
    """Return the size, up to ``size``, of slices that are all equal and so share a graph; or, if
    these would be less than half as large, of slices of which the last is smaller."""
    size = min(many, size)
    even = next(even for even in range(size, 0, -1) if many % even == 0)
    return even if 2 * even >= size else size


def _all(function: Function, *inputs: Tensor) -> tuple[Tensor, ...]:
    found = function(*inputs)
    return (found,) if isinstance(found, Tensor) else found


class _ByMemory(torch.autograd.Function):
    """Compute slices of the first axis one after another, by ``fast``: a function or its graph."""

    @staticmethod
    def forward(
        ctx: Any, function: Function, fast: Function, size: int, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*inputs)
        ctx.function, ctx.fast, ctx.size = function, fast, size
        ctx.kept, wanted = [], ctx.needs_input_grad[3:]
        slices, room = [], any(wanted)
        for some in _sliced(inputs, size):
            if not room:
                slices.append(_all(fast, *some))
                continue
            graph = Graph(partial(_all, fast), some, wanted)
            slices.append(tuple(x.detach() for x in graph.outputs))
            room = graph.keep()
            ctx.kept += [graph] * room
            del graph  # before the next one is made
        return tuple(torch.cat(outputs) for outputs in zip(*slices, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, size = ctx.saved_tensors, ctx.size
        wanted = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():  # to be differentiated once more, as graphs cannot be
            outputs = _all(ctx.function, *inputs)
            return None, None, None, *pulled(outputs, inputs, wanted, grads, again=True)
        kept, ctx.kept = ctx.kept[::-1], []
        found: list[list[Tensor | None]] = []
        for some, own in zip(_sliced(inputs, size), _sliced(grads, size), strict=True):
            graph = kept.pop() if kept else Graph(partial(_all, ctx.fast), some, wanted)
            found.append(graph.pulled(wanted, own))
            del graph  # with what it holds
        return None, None, None, *map(_joined, zip(*found, strict=True))


def _sliced(tensors: Any, size: int) -> list[tuple[Tensor, ...]]:
    many = next(x.shape[0] for x in tensors if x.ndim)
    count = -(-many // size)
    cut = [x.split(size) if x.ndim else (x,) * count for x in tensors]
    return list(zip(*cut, strict=True))


def _joined(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    if parts[0] is None:
        return None
    return torch.cat(parts) if parts[0].ndim else sum(parts)  # type: ignore[arg-type,return-value]
