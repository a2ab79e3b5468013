"""Kept pairs made from earlier pairs: forward substitution by parts, then all reads.

Only the making of pairs is sequential, as in a triangular system solved by blocks. For each part
(some chunks), one launch with a program for each chunk sums what earlier pairs contribute to its
rows; then one program for each memory makes the part's pairs, reading only the part's own. Outputs
are read when all pairs exist. Gradients go the other way: first those of made pairs, from the reads
and then part by part from the last one; everything else when these are known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from .fused import Held
from .operators import registered
from .streamed import WHOLE, Compiled, Launch, Launches, Part, States, Streamed

X = TypeVar("X")
Call = tuple[Any, list[X]]
"""A kernel and its pointers, or in their place their types."""

CHUNKS = 8
"""Chunks of a part. A program goes by the pairs of half a part for each chunk in turn, and each
part takes two launches: few pairs beside few launches, to be measured on a device."""


@dataclass(frozen=True)
class Substituted(Streamed):
    """The generated kernels of a form whose pairs are made of earlier ones, and what they take.

    ``forward`` and ``backward`` (with ``by_blocks``) are those of the output, which reads pairs.
    """

    made: dict[str, str] = field(default_factory=dict)
    """The states whose pairs are made, and the names of their rows."""
    earlier: Any = None
    """The kernel that begins a part's ``sums``."""
    making: Any = None
    """The kernel that makes a part's pairs."""
    sums: tuple[Held, ...] = ()
    back_sums: Any = None
    """The kernel of the sums over pairs, ``back_given``, that the gradient of made pairs reads."""
    back_given: tuple[Held, ...] = ()
    back_making: Any = None
    """The kernel of the gradient of a part's own pairs, which stores ``back_handed``."""
    back_earlier: Any = None
    """The kernel of the gradient of made pairs before a part."""
    back_handed: tuple[Held, ...] = ()
    back_rest: Any = None
    """The kernel of the gradients of rows through the making, which stores ``rest_handed``."""
    back_pairs: Any = None
    """The kernel of the gradients of the other pairs through the making."""
    rest_handed: tuple[Held, ...] = ()
    rest_gradients: tuple[str, ...] = ()
    """The arguments that have a gradient through the making."""
    read_gradients: tuple[str, ...] = ()
    """The arguments that have a gradient through the reads, made rows among them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", registered("pairs", MakingLaunches(self)))


@dataclass(frozen=True)
class MakingLaunches(Launches):
    """The launches of a form whose pairs are made of earlier ones, as its operators call them."""

    kernel: Substituted

    def launch(
        self, rows: list[Tensor], states: list[Tensor], numbers: list[int], *, gradient: bool,
        dry: bool,
    ) -> Launch:  # fmt: skip
        """Return the launch of an operator's arguments."""
        return MakingLaunch.of(self.kernel, rows, states, numbers, gradient=gradient, dry=dry)


@dataclass(frozen=True)
class MakingLaunch(Launch):
    """The launches of all kernels of a form that makes its pairs, over some rows."""

    kernel: Substituted

    def forward(self, states: list[Tensor]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return the output, the states at the end, and the pairs as kernels read them."""
        kernel, (pairs, ends) = self.kernel, self.grown(states)
        out = self.like.new_empty(*self.like.shape[:3], self.sizes[kernel.value])
        earlier, making, read = self._form(self.rows, pairs, self.tiles(kernel.sums), out)
        for first in self._parts():
            chunks = min(CHUNKS, self.chunks - first)
            self._start(*earlier, pairs, chunks, _part(first))
            self._start(*making, pairs, 1, _part(first))
        self._start(*read, pairs, self.chunks)
        return out, ends, pairs

    def _form(self, rows: list[X], pairs: list[X], sums: list[X], out: X) -> list[Call[X]]:
        """Return the kernels of the form, each with its pointers."""
        kernel, given = self.kernel, [*rows, *pairs]
        return [
            (kernel.earlier, [*given, *sums]),
            (kernel.making, [*given, *sums]),
            (kernel.forward, [*given, out]),
        ]

    def backward(
        self, pairs: list[Tensor], states: list[Tensor], d_out: Tensor, d_ends: list[Tensor]
    ) -> tuple[States, list[Tensor]]:
        """Return the gradients of the rows, and of the pairs before them."""
        kernel, real = self.kernel, torch.promote_types(self.like.dtype, torch.float32)
        d_pairs = [x.to(real, copy=True).contiguous() for x in d_ends]
        read, rest = self._gradients(kernel.read_gradients), self._gradients(kernel.rest_gradients)
        sets = (kernel.handed, kernel.back_given, kernel.back_handed, kernel.rest_handed)
        tiles = [self.tiles(held) for held in sets]
        calls = self._back(self.rows, d_out.contiguous(), pairs, d_pairs, read, rest, tiles)
        by_chunk, by_block, sums, making, earlier, others, other_pairs = calls
        blocks = self.blocks(pairs[0].shape[1])
        self._start(*by_chunk, pairs, self.chunks)
        self._start(*by_block, pairs, blocks)
        self._hand_back(read, d_pairs)
        if kernel.back_sums is not None:
            self._start(*sums, pairs, self.chunks)
        for first in reversed(self._parts()):
            self._start(*making, pairs, 1, _part(first))
            if since := self._since(first, pairs):
                self._start(*earlier, pairs, self.blocks(since), _part(first))
        self._start(*others, pairs, self.chunks)
        self._start(*other_pairs, pairs, blocks)
        found = {n: _sum([x[n] for x in (read, rest) if n in x]) for n in kernel.gradients}
        self.take_over(found, d_pairs)
        return found, [x[:, : x.shape[1] - self.length] for x in d_pairs]

    def _back(
        self, rows: list[X], d_out: X, pairs: list[X], d_pairs: list[X], read: dict[str, X],
        rest: dict[str, X], tiles: list[list[X]],
    ) -> list[Call[X]]:  # fmt: skip
        """Return the kernels of the gradient in the order of their launches, each with its
        pointers."""
        kernel, (handed, given, back_handed, rest_handed) = self.kernel, tiles
        names, made = [kept.name for kept in kernel.kept], kernel.made
        d_made = [x for name, x in zip(names, d_pairs, strict=True) if name in made]
        d_others = [x for name, x in zip(names, d_pairs, strict=True) if name not in made]
        out, known = [*rows, d_out, *pairs], [*rows, *pairs, *d_made]
        return [
            (kernel.backward, [*out, *read.values(), *handed]),
            (kernel.by_blocks, [*out, *d_pairs, *handed]),
            (kernel.back_sums, [*rows, *pairs, *given]),
            (kernel.back_making, [*known, *given, *back_handed]),
            (kernel.back_earlier, [*known, *given, *back_handed]),
            (kernel.back_rest, [*known, *rest.values(), *rest_handed]),
            (kernel.back_pairs, [*known, *d_others, *rest_handed]),
        ]

    def _gradients(self, names: tuple[str, ...]) -> States:
        """Return memory for the gradients of rows, made ones among them."""
        real = torch.promote_types(self.like.dtype, torch.float32)
        shapes = {r.name: tuple(x.shape) for r, x in zip(self.kernel.rows, self.rows, strict=True)}
        sizes = {kept.name: kept.sizes for kept in self.kernel.kept}
        for state, rows in self.kernel.made.items():
            shapes[rows] = (*self.like.shape[:3], *(self.sizes[size] for size in sizes[state]))
        return {n: self.like.new_empty(shapes[n], dtype=real) for n in names}

    def _hand_back(self, read: States, d_pairs: list[Tensor]) -> None:
        """Add what reads give to the gradients of made rows to those of their pairs."""
        for kept, x in zip(self.kernel.kept, d_pairs, strict=True):
            own = read.pop(self.kernel.made.get(kept.name, ""), None)
            if own is not None:
                x[:, x.shape[1] - self.length :] += own.transpose(1, 2).flatten(0, 1)

    def _parts(self) -> range:
        """Return the first chunk of each part."""
        return range(0, self.chunks, CHUNKS)

    def _since(self, chunk: int, pairs: list[Tensor]) -> int:
        """Return how many pairs there are before a chunk."""
        before = pairs[0].shape[1] - self.length
        return before + max(self.first + (chunk - 1) * self.cut.rows, 0)

    def calls(self, states: list[Tensor], *, gradient: bool) -> Iterator[Compiled]:
        """Yield the kernels that are launched, each with the types of its pointers, its numbers,
        and what part of the chunks it takes."""
        kernel, real = self.kernel, torch.promote_types(self.like.dtype, torch.float32)
        rows, pairs = [x.dtype for x in self.rows], self._types(states, gradient=gradient)
        own, room = self.like.dtype, int(states[0].shape[1]) + (0 if gradient else self.length)
        numbers = self.numbers(self.length, int(self.like.shape[2]), room)
        if gradient:
            sets = (kernel.handed, kernel.back_given, kernel.back_handed, kernel.rest_handed)
            read, rest = (
                dict.fromkeys(n, real) for n in (kernel.read_gradients, kernel.rest_gradients)
            )
            tiles = [[real] * len(held) for held in sets]
            found = self._back(rows, own, pairs, [real] * len(pairs), read, rest, tiles)
        else:
            found = self._form(rows, pairs, [real] * len(kernel.sums), own)
        parts = (kernel.earlier, kernel.making, kernel.back_making, kernel.back_earlier)
        for function, pointers in found:
            if function is not None:
                yield function, pointers, numbers, _part(0) if function in parts else WHOLE


def _part(first: int) -> Part:
    """Return the arguments of a launch of the part that begins with a chunk."""
    return {"part_from": first, "PART": CHUNKS}


def _sum(parts: list[Tensor]) -> Tensor:
    """Add two gradients, or return the one that there is."""
    return parts[0] if len(parts) == 1 else parts[0].add_(parts[1])
