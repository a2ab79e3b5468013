"""Tensors handed from a process to the next of a line, and their gradients handed back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd import Function

Shape = tuple[tuple[int, ...], torch.dtype]
"""What a tensor is, before it is there."""


@dataclass(frozen=True)
class Line:
    """The processes of a group in their order, each of which hears from the one before it.

    Args:
        group: of `torch.distributed`; ``None`` for all processes.
    """

    group: distributed.ProcessGroup | None = None

    @property
    def index(self) -> int:
        """Where this process stands, from 0."""
        return distributed.get_rank(self.group)

    @property
    def size(self) -> int:
        """How many processes there are."""
        return distributed.get_world_size(self.group)

    @property
    def first(self) -> bool:
        """Whether none stands before this process."""
        return self.index == 0

    @property
    def last(self) -> bool:
        """Whether none stands behind this process."""
        return self.index == self.size - 1

    def give(self, tensors: Sequence[Tensor], to: int) -> None:
        """Send tensors to the process at a place, as one message."""
        if tensors:
            message = torch.cat([x.detach().reshape(-1).view(torch.uint8) for x in tensors])
            distributed.send(message, group=self.group, group_dst=to)

    def take(self, shapes: Sequence[Shape], device: torch.device, of: int) -> list[Tensor]:
        """Receive tensors of these shapes from the process at a place."""
        if not shapes:
            return []
        sizes = [torch.Size(shape).numel() * dtype.itemsize for shape, dtype in shapes]
        message = torch.empty(sum(sizes), dtype=torch.uint8, device=device)
        distributed.recv(message, group=self.group, group_src=of)
        parts = torch.split(message, sizes)
        return [
            part.clone().view(dtype).view(shape)  # a tensor of its own starts where its type may
            for part, (shape, dtype) in zip(parts, shapes, strict=True)
        ]


class Given(Function):
    """y, behind which states have gone to the next process; its backward waits for their gradients.

    The gradients come when y's do, so something that y reaches has to be differentiated.
    """

    @staticmethod
    def forward(ctx: Any, line: Line, y: Tensor, *states: Tensor) -> Tensor:
        """Send the states; return y."""
        ctx.line, ctx.device = line, y.device
        ctx.shapes = [(tuple(s.shape), s.dtype) for s in states]
        line.give(states, line.index + 1)
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return y's gradient, and those of the states that are numbers."""
        floating = [dtype.is_floating_point for _, dtype in ctx.shapes]
        wanted = [shape for shape, own in zip(ctx.shapes, floating, strict=True) if own]
        found = iter(ctx.line.take(wanted, ctx.device, ctx.line.index + 1))
        return (None, grads[0], *(next(found) if own else None for own in floating))


class Taken(Function):
    """x, and the states of the process before this one, to which their gradients go back.

    x goes through, so that nothing before it in the graph is differentiated until they have gone,
    and the states are parts of the graph where x is.
    """

    @staticmethod
    def forward(ctx: Any, line: Line, x: Tensor, *shapes: Shape) -> Any:
        """Receive the states."""
        ctx.line = line
        states = line.take(shapes, x.device, line.index - 1)
        ctx.mark_non_differentiable(*(s for s in states if not s.is_floating_point()))
        ctx.floating = [s.is_floating_point() for s in states]
        return (x.view_as(x), *states)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Send the states' gradients; return x's."""
        own = [g for g, floating in zip(grads[1:], ctx.floating, strict=True) if floating]
        ctx.line.give(own, ctx.line.index - 1)
        return (None, grads[0], *(None for _ in ctx.floating))


class Reached(Function):
    """x, of which parameters are a part with gradient zero.

    What only a sequence's start takes (a first memory, learned tokens) would have no gradient in
    later processes, and DDP and FSDP wait for one of every parameter in every process.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return x."""
        ctx.parameters = [(p.shape, p.dtype, p.device) for p in parameters]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        """Return x's gradient, and zeros."""
        zeros = [torch.zeros(s, dtype=t, device=d) for s, t, d in ctx.parameters]
        return (grads[0], *zeros)
