"""Gradients over pairs that change: each chunk's reads the pairs as they were at its start.

They are kept at the start of every piece of about √N of N chunks, and recomputed inside a piece
chunk by chunk, so that 2 √N copies lie in memory at once.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import isqrt

import torch
from torch import Tensor
from torch.nn.functional import pad

from .place import Place
from .streamed import Launch, Launches, Streamed

Tensors = list[Tensor]
Numbers = list[int]


class Moving(Launches):
    """A kernel's launches over pairs that change, as its operators call them."""

    def forward(
        self, rows: Tensors, states: Tensors, positions: Tensor | None, bounds: Tensor | None,
        numbers: Numbers, *, keep: bool, dry: bool,
    ) -> Tensors:  # fmt: skip
        """Return the output, the final states and, with ``keep``, those where each piece starts."""
        if not keep:
            return super().forward(rows, states, positions, bounds, numbers, keep=False, dry=dry)
        outs, starts = [], []
        size = _piece(self._gradient(rows, states, numbers))
        for first, last, at in _spans(self.kernel, rows, numbers, size):
            starts += [x.clone() for x in states]
            part = _part(self.kernel, rows, first, last)
            launch = Launch.of(self.kernel, part, states, at, gradient=False, dry=dry)
            out, states, _ = launch.forward(states)
            outs.append(out)
        return [torch.cat(outs, 1), *states, *starts]

    def saved(self, rows: Tensors, output: Tensors) -> Tensors:
        """Return the states where each piece starts, from what ``forward`` has kept."""
        return output[1 + self._width :]

    def backward(
        self, rows: Tensors, kept: Tensors, positions: Tensor | None, bounds: Tensor | None,
        numbers: Numbers, ends: Tensors, *, dry: bool,
    ) -> Tensors:  # fmt: skip
        """Return the gradients of rows that have one, then of the states before them."""
        d_out, *d_states = ends
        found = _nothing(self.kernel, rows)
        width = self._width
        whole = self._gradient(rows, kept[:width], numbers)
        pieces = list(_spans(self.kernel, rows, numbers, _piece(whole)))
        for number, (first, last, at) in reversed(list(enumerate(pieces))):
            start = kept[number * width : (number + 1) * width]
            part = _part(self.kernel, rows, first, last)
            chunks = list(self._chunks(whole, part, start, at, dry=dry))
            for low, high, launch, states in reversed(chunks):
                pairs, beside = _padded(launch, states), states[len(self.kernel.kept) :]
                d_part = d_out[:, first + low : first + high]
                parts, d_states = launch.backward(pairs, beside, d_part, d_states)
                for name, x in parts.items():
                    found[name][:, first + low : first + low + x.shape[1]] += x
        named = {row.name: x for row, x in zip(self.kernel.rows, rows, strict=True)}
        own = [found[n].to(x.dtype) for n, x in named.items() if n in found]
        return [*own, *(x.contiguous() for x in d_states)]

    @property
    def _width(self) -> int:
        return len(self.kernel.kept) + len(self.kernel.states)

    def _gradient(self, rows: Tensors, states: Tensors, numbers: Numbers) -> Launch:
        """Return a launch of the gradient over all rows, for its cut: chunks follow from that."""
        return Launch.of(self.kernel, rows, states, numbers, gradient=True, dry=True)

    def _chunks(
        self, whole: Launch, rows: Tensors, start: Tensors, numbers: Numbers, *, dry: bool
    ) -> Iterator[tuple[int, int, Launch, Tensors]]:
        """Yield each chunk's rows, its gradient's launch, and the states at its start."""
        kernel, states = self.kernel, start
        for first, last, at in _spans(kernel, rows, numbers, whole.cut.rows):
            part = _part(kernel, rows, first, last)
            yield first, last, whole.over(part, at, dry=dry), states
            launch = Launch.of(kernel, part, states, at, gradient=False, dry=dry)
            _, states, _ = launch.forward(states)


def _piece(whole: Launch) -> int:
    """Return the rows of a piece, about √N of N chunks."""
    return whole.cut.rows * (1 + isqrt(max(0, whole.chunks - 1)))


def _spans(
    kernel: Streamed, rows: Tensors, numbers: Numbers, size: int
) -> Iterator[tuple[int, int, Numbers]]:
    """Yield the first and last row of each piece, and what tells where it lies in its document."""
    place, length, steps = Place.of(numbers), rows[kernel.plain].shape[1], kernel.steps
    edge = size - place.position * steps % size if place.anchor > 1 else size
    first = 0
    while first < length:
        last = min(first + (edge if first == 0 else size), length)
        yield first, last, replace(place, position=place.position + first // steps).numbers()
        first = last


def _part(kernel: Streamed, rows: Tensors, first: int, last: int) -> Tensors:
    """Cut some rows out of each argument, with those before them that their windows see."""
    ends = [last + (kernel.window - 1 if row.shared else 0) for row in kernel.rows]
    return [x[:, first:end].contiguous() for x, end in zip(rows, ends, strict=True)]


def _nothing(kernel: Streamed, rows: Tensors) -> dict[str, Tensor]:
    """Return zero gradients of the rows, to which chunks will add."""
    named = {row.name: x for row, x in zip(kernel.rows, rows, strict=True)}
    real = [(n, x, torch.promote_types(x.dtype, torch.float32)) for n, x in named.items()]
    return {n: torch.zeros_like(x, dtype=dtype) for n, x, dtype in real if n in kernel.gradients}


def _padded(launch: Launch, states: Tensors) -> Tensors:
    """Pad the pairs before a chunk with room for its own."""
    return [
        pad(x.double() if kept.wide else x, (*[0, 0] * (x.ndim - 2), 0, launch.length))
        for kept, x in zip(launch.kernel.kept, states, strict=False)
    ]
