"""A function of many memories, for a few of them at a time: what it makes stays in the cache."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .transforms import transformed

ENTRIES = 2**18
"""Entries of the largest tensor that a call may make: 1 MiB in float32."""

Found = Tensor | tuple[Tensor, ...]
Function = Callable[..., Found]


def by_memory(function: Function, entries: int, *inputs: Tensor) -> Found:
    """Return function(*inputs), computed for slices of the first axis, that of the memories.

    The gradient computes each slice again, so that nothing between inputs and outputs is kept.
    Tensors without axes are the same for every slice. On other devices, in a graph and under
    transforms the function is called as it is.

    Args:
        function: of tensors [M, ...], which treats each of the M memories by itself.
        entries: of the largest tensor that it makes, for one memory.
        inputs: its arguments.
    """
    device = inputs[0].device.type
    many = next(x.shape[0] for x in inputs if x.ndim)
    size = max(1, ENTRIES // max(1, entries))
    if size >= many or device != "cpu" or torch.compiler.is_compiling() or transformed():
        return function(*inputs)
    found: tuple[Tensor, ...] = _ByMemory.apply(function, size, *inputs)
    return found if len(found) > 1 else found[0]


def _all(function: Function, *inputs: Tensor) -> tuple[Tensor, ...]:
    found = function(*inputs)
    return (found,) if isinstance(found, Tensor) else found


class _ByMemory(torch.autograd.Function):
    """Slices of the first axis, one after another, forward and backward."""

    @staticmethod
    def forward(ctx: Any, function: Function, size: int, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*inputs)
        ctx.function, ctx.size = function, size
        slices = [_all(function, *some) for some in _sliced(inputs, size)]
        return tuple(torch.cat(outputs) for outputs in zip(*slices, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, function, size = ctx.saved_tensors, ctx.function, ctx.size
        wanted = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # to be differentiated once more
            outputs = _all(function, *inputs)
            return None, None, *_pulled(outputs, inputs, wanted, grads, again=True)
        found: list[list[Tensor | None]] = []
        for some, own in zip(_sliced(inputs, size), _sliced(grads, size), strict=True):
            leaves = [x.detach().requires_grad_(w) for x, w in zip(some, wanted, strict=True)]
            with torch.enable_grad():
                outputs = _all(function, *leaves)
            found.append(_pulled(outputs, leaves, wanted, own, again=False))
        return None, None, *map(_joined, zip(*found, strict=True))


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
