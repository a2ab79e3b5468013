"""Searches that go on until all entries are found: by the host, or inside a graph of torch."""

from collections.abc import Callable

import torch
from torch import Tensor

Carried = tuple[Tensor, ...]


def searched(
    step: Callable[..., Carried], moving: Callable[..., Tensor], start: Carried, *, most: int
) -> Carried:
    """Repeat ``step(count, *carried)`` while ``moving(*carried)`` has any, ``most`` times at most.

    ``start`` is what the first step takes, in the shapes that steps give; ``count`` is a number, or
    a tensor of one. While a call is traced the loop is an operator of torch, for no number can be
    read. Not differentiable.
    """
    carried = start
    if torch.compiler.is_compiling():
        return _in_graph(step, moving, start, most)
    for count in range(most):
        carried = step(count, *carried)
        if not bool(moving(*carried).any()):
            break
    return carried


def _in_graph(
    step: Callable[..., Carried], moving: Callable[..., Tensor], start: Carried, most: int
) -> Carried:
    from torch._higher_order_ops.while_loop import while_loop

    def going(count: Tensor, *carried: Tensor) -> Tensor:
        return (count < most) & moving(*carried).any()

    def turn(count: Tensor, *carried: Tensor) -> Carried:
        return (count + 1, *map(_own, step(count, *carried)))

    first = torch.zeros((), dtype=torch.int64, device=start[0].device)
    found: Carried = while_loop(going, turn, (first, *map(_own, start)))
    return found[1:]


def _own(x: Tensor) -> Tensor:
    """Return a copy in memory of its own, laid out as every other."""
    return x.clone(memory_format=torch.contiguous_format)
