"""Gradients where kept pairs change: each chunk's reads the pairs as they stood at its start.

They are kept at the start of every piece of about √N of N chunks, and made anew inside a piece
chunk by chunk, so that 2 √N copies lie in memory at once.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import isqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from .fused import Place
from .streamed import Launch, Streamed

Tensors = list[Tensor]


class Moving(torch.autograd.Function):
    """A kernel over pairs that change, with its gradient."""

    @staticmethod
    def forward(ctx: Any, kernel: Streamed, place: Place, *tensors: Tensor) -> Any:
        count = len(kernel.rows)
        rows, states = [x.contiguous() for x in tensors[:count]], list(tensors[count:])
        chunk = Launch.of(kernel, list(tensors), place, gradient=True).span
        size = chunk.rows * (1 + isqrt(max(0, chunk.chunks - 1)))
        outs, starts = [], []
        for first, last, at in _spans(rows, place, kernel, size):
            starts.append(states)
            given = [*_part(rows, first, last), *states]
            launch = Launch.of(kernel, given, at, gradient=False)
            out, states, _ = launch.forward(given)
            outs.append(out)
        ctx.kernel, ctx.place, ctx.size, ctx.chunk = kernel, place, size, chunk.rows
        ctx.types, ctx.pieces = [x.dtype for x in tensors], len(starts)
        ctx.save_for_backward(*rows, *(x for start in starts for x in start))
        return torch.cat(outs, 1), *states

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        kernel: Streamed = ctx.kernel
        count, width = len(kernel.rows), len(kernel.kept) + len(kernel.states)
        rows, kept = list(ctx.saved_tensors[:count]), list(ctx.saved_tensors[count:])
        d_out, d_states = grads[0], list(grads[1:])
        parts: list[dict[str, Tensor]] = []
        pieces = list(_spans(rows, ctx.place, kernel, ctx.size))
        for number, (first, last, at) in reversed(list(enumerate(pieces))):
            start = kept[number * width : (number + 1) * width]
            piece = _part(rows, first, last)
            chunks = list(_chunks(kernel, piece, start, at, ctx.chunk))
            for low, high, launch, states in reversed(chunks):
                ends = _part([d_out], first + low, first + high)[0]
                found, d_states = _back(launch, _part(piece, low, high), states, ends, d_states)
                parts.append(found)
        whole = {n: torch.cat([p[n] for p in reversed(parts)], 1) for n in kernel.gradients}
        given = [whole.get(row.name) for row in kernel.rows] + d_states
        typed = [None if x is None else x.to(t) for x, t in zip(given, ctx.types, strict=True)]
        return None, None, *typed


def _spans(
    rows: Tensors, place: Place, kernel: Streamed, size: int
) -> Iterator[tuple[int, int, Place]]:
    """First and last row of each piece, and where it lies in its document."""
    length, steps = rows[0].shape[1], kernel.steps
    edge = size - place.position * steps % size if place.anchor > 1 else size
    first = 0
    while first < length:
        last = min(first + (edge if first == 0 else size), length)
        yield first, last, replace(place, position=place.position + first // steps)
        first = last


def _chunks(
    kernel: Streamed, rows: Tensors, start: Tensors, place: Place, size: int
) -> Iterator[tuple[int, int, Launch, Tensors]]:
    """Each chunk's rows, its launch, and the states at its start."""
    states = start
    for first, last, at in _spans(rows, place, kernel, size):
        given = [*_part(rows, first, last), *states]
        yield first, last, Launch.of(kernel, given, at, gradient=True), states
        _, states, _ = Launch.of(kernel, given, at, gradient=False).forward(given)


def _part(rows: Tensors, first: int, last: int) -> Tensors:
    return [x[:, first:last].contiguous() for x in rows]


def _back(
    launch: Launch, rows: Tensors, states: Tensors, d_out: Tensor, d_ends: Tensors
) -> tuple[dict[str, Tensor], Tensors]:
    """One chunk's gradients: of its rows, and of the states before it."""
    length = launch.span.length
    pairs = [
        pad(x.double() if kept.wide else x, (*[0, 0] * (x.ndim - 2), 0, length))
        for kept, x in zip(launch.kernel.kept, states, strict=False)
    ]
    return launch.backward(rows, pairs, d_out, d_ends)
