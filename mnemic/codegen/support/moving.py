"""Gradients where kept pairs change: each chunk's reads the pairs as they stood at its start.

They are kept at the start of every piece of about √N of N chunks, and made anew inside a piece
chunk by chunk, so that 2 √N copies lie in memory at once.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import isqrt

import torch
from torch import Tensor
from torch.nn.functional import pad

from .place import Place
from .streamed import Launch, Launches

Tensors = list[Tensor]
Numbers = list[int]


class Moving(Launches):
    """A kernel's launches over pairs that change, as its operators call them."""

    def forward(
        self, rows: Tensors, states: Tensors, positions: Tensor | None, bounds: Tensor | None,
        numbers: Numbers, *, keep: bool, dry: bool,
    ) -> Tensors:  # fmt: skip
        """The output, the states at the end, and with ``keep`` those where each piece starts."""
        if not keep:
            return super().forward(rows, states, positions, bounds, numbers, keep=False, dry=dry)
        outs, starts = [], []
        size = self._piece(rows, states, numbers)
        for first, last, at in _spans(rows, numbers, self.kernel.steps, size):
            starts += [x.clone() for x in states]
            launch = Launch.of(
                self.kernel, _part(rows, first, last), states, at, gradient=False, dry=dry
            )
            out, states, _ = launch.forward(states)
            outs.append(out)
        return [torch.cat(outs, 1), *states, *starts]

    def saved(self, rows: Tensors, output: Tensors) -> Tensors:
        """Of results that were kept, where each piece starts."""
        return output[1 + self._width :]

    def backward(
        self, rows: Tensors, kept: Tensors, positions: Tensor | None, bounds: Tensor | None,
        numbers: Numbers, ends: Tensors, *, dry: bool,
    ) -> Tensors:  # fmt: skip
        """The gradients of rows that have one, then of the states before them."""
        d_out, *d_states = ends
        parts: list[dict[str, Tensor]] = []
        size, width = self._piece(rows, kept[: self._width], numbers), self._width
        pieces = list(_spans(rows, numbers, self.kernel.steps, size))
        for number, (first, last, at) in reversed(list(enumerate(pieces))):
            start = kept[number * width : (number + 1) * width]
            chunks = list(self._chunks(_part(rows, first, last), start, at, dry=dry))
            for low, high, launch, states in reversed(chunks):
                (part,) = _part([d_out], first + low, first + high)
                found, d_states = launch.backward(_padded(launch, states), part, d_states)
                parts.append(found)
        named = {row.name: x for row, x in zip(self.kernel.rows, rows, strict=True)}
        whole = {n: torch.cat([p[n] for p in reversed(parts)], 1) for n in self.kernel.gradients}
        own = [whole[n].to(x.dtype) for n, x in named.items() if n in whole]
        return [*own, *(x.contiguous() for x in d_states)]

    @property
    def _width(self) -> int:
        return len(self.kernel.kept) + len(self.kernel.states)

    def _piece(self, rows: Tensors, states: Tensors, numbers: Numbers) -> int:
        """Rows of a piece."""
        launch = Launch.of(self.kernel, rows, states, numbers, gradient=True, dry=True)
        return launch.cut.rows * (1 + isqrt(max(0, launch.chunks - 1)))

    def _chunks(
        self, rows: Tensors, start: Tensors, numbers: Numbers, *, dry: bool
    ) -> Iterator[tuple[int, int, Launch, Tensors]]:
        """Each chunk's rows, its gradient's launch, and the states at its start."""
        kernel, states = self.kernel, start
        size = Launch.of(kernel, rows, start, numbers, gradient=True, dry=True).cut.rows
        for first, last, at in _spans(rows, numbers, kernel.steps, size):
            part = _part(rows, first, last)
            yield first, last, Launch.of(kernel, part, states, at, gradient=True, dry=dry), states
            launch = Launch.of(kernel, part, states, at, gradient=False, dry=dry)
            _, states, _ = launch.forward(states)


def _spans(
    rows: Tensors, numbers: Numbers, steps: int, size: int
) -> Iterator[tuple[int, int, Numbers]]:
    """First and last row of each piece, and what tells where it lies in its document."""
    place, length = Place.of(numbers), rows[0].shape[1]
    edge = size - place.position * steps % size if place.anchor > 1 else size
    first = 0
    while first < length:
        last = min(first + (edge if first == 0 else size), length)
        yield first, last, replace(place, position=place.position + first // steps).numbers()
        first = last


def _part(rows: Tensors, first: int, last: int) -> Tensors:
    return [x[:, first:last].contiguous() for x in rows]


def _padded(launch: Launch, states: Tensors) -> Tensors:
    """The pairs before a chunk with room for its own."""
    return [
        pad(x.double() if kept.wide else x, (*[0, 0] * (x.ndim - 2), 0, launch.length))
        for kept, x in zip(launch.kernel.kept, states, strict=False)
    ]
