"""Intermediate results of a function, kept for its gradient while a budget of bytes lasts."""

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

KEPT = 2**30
"""Bytes that a process keeps at most, of all calls together, unless `keep_up_to` says otherwise."""

Outputs = tuple[Tensor, ...]


class _Room:
    """The budget: how many bytes may be held, and how many are."""

    def __init__(self) -> None:
        self.most, self.held = KEPT, 0
        self._lock = RLock()  # the garbage collector may give back within `take`

    def take(self, many: int) -> bool:
        """Count bytes as held, if there is room for them."""
        with self._lock:
            fits = self.held + many <= self.most
            self.held += many * fits
        return fits

    def give_back(self, many: int) -> None:
        """Count bytes as held no longer."""
        with self._lock:
            self.held -= many


_room = _Room()


def keep_up_to(most: int) -> None:
    """Set how many bytes a process keeps, of all calls together; what is kept already stays."""
    _room.most = most


class Graph:
    """A function's outputs with the graph that leads to them, and the bytes that this holds."""

    def __init__(self, function: Callable[..., Outputs], inputs: Sequence[Tensor], wanted: Any):
        """Call the function; the inputs marked in ``wanted`` get a gradient."""
        self._counted = 0
        self.leaves = [x.detach().requires_grad_(w) for x, w in zip(inputs, wanted, strict=True)]
        held = {x.untyped_storage().data_ptr(): x.nbytes for x in self.leaves}

        def saved(x: Tensor) -> Tensor:
            storage = x.untyped_storage()
            held.setdefault(storage.data_ptr(), storage.nbytes())
            return x.detach()  # itself, it would hold the graph that holds it

        with torch.enable_grad(), saved_tensors_hooks(saved, lambda x: x):
            self.outputs = function(*self.leaves)
        self.bytes = sum(held.values())

    def keep(self) -> bool:
        """Reserve the graph's bytes while it lives; return whether there was room for them."""
        fits = _room.take(self.bytes)
        self._counted = self.bytes * fits
        return fits

    def pulled(self, wanted: Any, grads: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradients at the inputs that are wanted, None at the others."""
        return pulled(self.outputs, self.leaves, wanted, grads, again=False)

    def __del__(self) -> None:
        _room.give_back(self._counted)


def pulled(
    outputs: Outputs, inputs: Sequence[Tensor], wanted: Any, grads: Sequence[Tensor], *, again: bool
) -> list[Tensor | None]:
    """Return the gradients at the inputs marked in ``wanted``, None at the others.

    Args:
        outputs: [...]; those without a graph are ignored.
        inputs: of the graph.
        wanted: for each input, whether it has a gradient.
        grads: of the outputs.
        again: whether the gradients are to be differentiated once more.
    """
    at = [x for x, w in zip(inputs, wanted, strict=True) if w]
    given = [(y, g) for y, g in zip(outputs, grads, strict=True) if y.requires_grad]
    if not at or not given:
        return [None] * len(wanted)
    ends, pulls = zip(*given, strict=True)
    told = iter(torch.autograd.grad(ends, at, pulls, create_graph=again, allow_unused=True))
    return [next(told) if w else None for w in wanted]
