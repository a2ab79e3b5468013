"""A function of many memories, for a few of them at a time: what it makes stays in the cache."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

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
    """Run functions under ``torch.compile`` while this lasts, in the whole process.

    A function has a graph for each shape of its arguments, which depends on the length of a chunk
    and not on that of the sequence. Where activations are computed again in the backward pass, that
    must lie within too.
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

    The gradient computes each slice again, so that nothing between inputs and outputs is kept.
    Tensors without axes are the same for every slice. On other devices than a CPU, in a graph and
    under transforms the function is called as it is; within `compiled_parts` it runs under
    torch.compile, and its gradient computes it again, on every device.

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
    """Return a size up to ``size`` of slices that are all alike, as their graph is; or, where these
    would be less than half as large, of slices of which the last is smaller."""
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
        slices = [_all(fast, *some) for some in _sliced(inputs, size)]
        return tuple(torch.cat(outputs) for outputs in zip(*slices, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, size = ctx.saved_tensors, ctx.size
        wanted = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():  # to be differentiated once more, as graphs cannot be
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
