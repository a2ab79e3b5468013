"""What torch.compile's backward pass would otherwise overwrite: slices, and all that is saved.

The backward pass may write into what the forward pass saved for it alone ("donated" buffers). Of
two saved tensors that share memory, which a tensor and its views do, inductor (torch 2.13) writes
into one and reads the other later, without a word. So a graph with a rule in it gives nothing away;
and slices are taken so that they are not saved at all: views of one output are made again, those of
several (``unbind``, ``split`` by sizes) are not.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from .versions import constant


@constant
def keep_what_is_saved() -> None:
    """Have the backward pass of this graph, and of later ones, write into nothing that is saved.

    torch.compile calls it while it looks at the code; the setting is torch's, of the process.
    """
    settings: Any = __import__("torch._functorch.config", fromlist=["donated_buffer"])
    settings.donated_buffer = False


class _Slices(torch.autograd.Function):
    """x[0], x[1], …, one after another; their gradients are stacked, as those of ``unbind``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(x[i] for i in range(x.shape[0]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return torch.stack(grads)


def slices(x: Tensor) -> tuple[Tensor, ...]:
    """Return the slices x[0], x[1], … along the first axis."""
    if torch.compiler.is_compiling() and x.shape[0]:
        found: tuple[Tensor, ...] = _Slices.apply(x)
        return found
    return x.unbind()


def each(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Iterate over the slices of tensors of one length along the first axis, side by side."""
    return zip(*(slices(x) for x in tensors), strict=True)


def parts(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Cut x along the last axis into parts of these sizes."""
    if not torch.compiler.is_compiling():
        return x.split(list(sizes), -1)
    ends = accumulate(sizes)
    return tuple(x[..., end - size : end] for size, end in zip(sizes, ends, strict=True))
