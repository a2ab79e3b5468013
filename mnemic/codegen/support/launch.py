"""Launches of a fused kernel: its arguments, its results, and its gradient piece by piece.

A gradient keeps the states at the start of every piece (a run of chunks), and recomputes those of
its chunks. With ``dry`` only the results' shapes are made, and nothing is launched.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from . import buffers, divided, dividing, versions
from .configuration import LEANEST, Configuration
from .fused import LANES, PRECISIONS, Cutting, Held, Kernel, Stored, sizes_of, swept_always
from .narrower import leaner, of_gradient, settled
from .place import Place
from .sizes import power_of_two, specialised
from .stack import stack_of
from .starting import begin

Cuts = Callable[[], Iterable[Configuration]]


@dataclass(frozen=True)
class Launches:
    """A kernel's launches, as its operators call them."""

    kernel: Kernel

    def forward(
        self, rows: list[Tensor], states: list[Tensor], positions: Tensor | None,
        bounds: Tensor | None, numbers: list[int], *, keep: bool, dry: bool,
    ) -> list[Tensor]:  # fmt: skip
        """Return the output, the final states and, with ``keep``, those where each piece starts."""
        if dry and _any_length(rows):
            return self._of_any_length(rows, states, keep=keep)
        launch = Launch.of(
            self.kernel, rows, states, positions, bounds, numbers, gradient=keep, dry=dry
        )
        like = launch.like
        channels = launch.sizes[self.kernel.value]
        out = buffers.empty((*like.shape[:3], channels), like)
        end = [buffers.empty(tuple(x.shape), x) for x in states]
        slots = launch.slots * launch.heads if keep else 0
        back = launch.divided_gradient
        if back is None:
            stored = kept = [buffers.empty((slots, *x.shape[1:]), x) for x in states]
        else:
            kept = back.kept(launch, slots)
            stored = back.as_stored(launch, kept)
        launch.run([x.contiguous() for x in states], end, stored, out=out, keep=keep)
        return [out, *end, *(kept if keep else ())]

    def _of_any_length(
        self, rows: list[Tensor], states: list[Tensor], *, keep: bool
    ) -> list[Tensor]:  # fmt: skip
        """Return results without data for a symbolic length (or batch): how many states are kept
        depends on the cut, which is chosen at a launch."""
        like = rows[self.kernel.plain]
        channels = sizes_of(self.kernel, rows, states)[self.kernel.value]
        found = [like.new_empty(*like.shape[:3], channels), *map(torch.empty_like, states)]
        if keep:
            slots = torch.library.get_ctx().new_dynamic_size()
            found += [x.new_empty(slots, *x.shape[1:]) for x in states]
        return found

    def saved(self, rows: list[Tensor], output: list[Tensor]) -> list[Tensor]:
        """Return the states at the start of every piece, from what ``forward`` has kept."""
        return output[1 + len(self.kernel.states) :]

    def backward(
        self, rows: list[Tensor], kept: list[Tensor], positions: Tensor | None,
        bounds: Tensor | None, numbers: list[int], ends: list[Tensor], *, dry: bool,
    ) -> list[Tensor]:  # fmt: skip
        """Return the gradients of the rows that have one, then of the initial states."""
        if dry:  # the rows' shapes, and the states'
            named = zip(self.kernel.rows, rows, strict=True)
            found_rows = [torch.empty_like(x) for r, x in named if r.name in self.kernel.gradients]
            return [*found_rows, *map(torch.empty_like, ends[1:])]
        launch = Launch.of(
            self.kernel, rows, kept, positions, bounds, numbers, gradient=True, dry=False
        )
        d_out, *d_states = [x.contiguous() for x in ends]
        if (back := launch.divided_gradient) is not None:
            return back.run(launch, kept, [d_out, *d_states])
        found = launch.gradients()
        memories = launch.sequences * launch.heads
        for piece in reversed(range(launch.pieces)):
            shapes = [(memories, launch.cutting.piece, *x.shape[1:]) for x in kept]
            within = [buffers.empty(shape, x) for shape, x in zip(shapes, kept, strict=True)]
            launch.run(kept, within, within, piece=piece)
            d_states = launch.back(within, d_out, d_states, found, piece)
        own = dict(zip((row.name for row in self.kernel.rows), rows, strict=True))
        return [*(launch.joined(n, x).to(own[n].dtype) for n, x in found.items()), *d_states]


@dataclass(frozen=True)
class Launch:
    """The settings that all launches over the same arguments share."""

    kernel: Kernel
    rows: list[Tensor]
    positions: Tensor | None
    bounds: Tensor | None
    cutting: Cutting
    sizes: dict[str, int]
    dry: bool

    @classmethod
    def of(
        cls, kernel: Kernel, rows: list[Tensor], states: list[Tensor], positions: Tensor | None,
        bounds: Tensor | None, numbers: list[int], *, gradient: bool, dry: bool,
    ) -> "Launch":  # fmt: skip
        """Choose the cut for an operator's arguments; ``states`` are needed for their sizes."""
        sizes = sizes_of(kernel, rows, states)
        sequences = rows[0].shape[0] if bounds is None else bounds.shape[0] - 1
        given = [x.contiguous() for x in rows]
        place, like = Place.of(numbers), rows[kernel.plain]

        def launch(cutting: Cutting) -> Launch:
            own = kernel.that_of(cutting.chosen)
            return cls(own, given, positions, bounds, cutting, sizes, dry)

        def settle(cut: Configuration, instead: Cuts) -> Configuration:
            begun = launch(Cutting.cut(kernel, like, place, cut))
            return begun.settled(place, instead, gradient=gradient)

        cutting = Cutting.of(
            kernel, rows, sizes, numbers, sequences=int(sequences), gradient=gradient,
            settle=settle, alike=(positions is None, bounds is None),
        )  # fmt: skip
        return launch(cutting)

    # -- the cut ----------------------------------------------------------------------------

    def settled(self, place: Place, instead: Cuts, *, gradient: bool) -> Configuration:
        """Return the launch's cut, or, if its kernels spill registers, a narrower one (or one of a
        kernel that may run instead); the same for the form and its gradient."""
        kernel = self.kernel
        if kernel.divides(self.cutting.chosen):
            return self._divided(place, gradient=gradient)
        alike = self._alike(place)

        def spilled(cut: Configuration) -> int:
            own, cutting = kernel.that_of(cut), Cutting.cut(kernel, self.like, place, cut)
            return replace(self, kernel=own, cutting=cutting).spilled(gradient=gradient)

        def behind(cut: Configuration) -> Configuration:
            own = kernel.that_of(cut)
            rows = gradient and own.along and own.chunked and not cut.lean
            return leaner(cut) if rows else cut

        lean = gradient and not kernel.along
        order = of_gradient(kernel.narrowing) if lean else kernel.narrowing
        return settled(
            self.cutting.chosen, order, spilled,
            what=kernel.name + " with gradients" * gradient, sizes=self.sizes,
            alike=alike, device=self.like.device, instead=instead, behind=behind,
        )  # fmt: skip

    def _alike(self, place: Place) -> tuple[Any, ...]:
        """Return a key that launches share if they share their compiled kernels."""
        return (
            self.kernel.forward, *(x.dtype for x in self.rows),
            specialised(int(self.total)), specialised(int(self.heads)), self.positions is None,
            self.bounds is None, place.anchor, place.wanted, swept_always(),
        )  # fmt: skip

    def _divided(self, place: Place, *, gradient: bool) -> Configuration:
        """Return a cut into several kernels, or a narrower one where these spill registers."""
        cut, device = self.cutting.chosen, self.like.device
        if versions.interpreting() or (device.type != "cuda" and not versions.elsewhere()):
            return cut

        def cut_so(cut: Configuration) -> Launch:
            return replace(self, cutting=Cutting.cut(self.kernel, self.like, place, cut))

        alike = (*self._alike(place), *self.sizes.items(), gradient, device, versions.offline())
        return dividing.settled(
            cut, lambda cut: cut_so(cut).spilled_in_several(scanned=False, gradient=gradient),
            lambda cut: cut_so(cut).spilled_in_several(scanned=True, gradient=gradient), alike,
        )  # fmt: skip

    def spilled_in_several(self, *, scanned: bool, gradient: bool) -> dict[str, int]:
        """Return the bytes that a thread spills, by kernel: of the scans if ``scanned``, else of
        the kernels that run chunks in parallel."""
        back = self.divided_gradient if gradient else None
        found = (
            divided.spilled_in_scan(self, keep=gradient) if scanned
            else divided.spilled_in_parallel(self)
        )  # fmt: skip
        return found if back is None else found | back.spilled(self, scanned=scanned)

    def spilled(self, *, gradient: bool) -> int:
        """Count the bytes of registers that a thread spills: in the form's kernel, in the
        gradient's, and in the form's when it recomputes states for the gradient."""
        rows, real = [x.dtype for x in self.rows], _real(self.rows[0].dtype)
        pointers = [*rows, self.like.dtype, *3 * [real] * len(self.kernel.states)]
        found = 0
        if gradient and self.kernel.backward is not None:
            grads = [real] * (len(self.kernel.gradients) + self._scratches(gradient=True))
            found = self._stack(self.kernel.backward, [*pointers, *grads], self._lean())
        ways = [{"KEEP": gradient, "READ": True}]
        ways += [{"KEEP": False, "READ": False}] if gradient else []
        pointers += [real] * self._scratches(gradient=False)
        return found + sum(self._stack(self.kernel.forward, pointers, way) for way in ways)

    def _scratches(self, *, gradient: bool) -> int:
        return len(self._stored(gradient=gradient))

    def _stored(self, *, gradient: bool) -> Stored:
        """Return how many rows along each axis, and matrices, a kernel stores."""
        return self.kernel.scratch[gradient] if self.kernel.scratch else ()

    def _stack(self, function: Any, pointers: list[torch.dtype], flags: Mapping[str, int]) -> int:
        options = {**self.constants(), **flags, **self.options()}
        return self.stack(function, self.grid, pointers, options)

    def stack(
        self, function: Any, grid: tuple[int, int], pointers: list[torch.dtype],
        options: dict[str, Any],
    ) -> int:  # fmt: skip
        """Return the bytes of registers that a thread of a kernel spills."""
        where = [None if x is None else x.dtype for x in (self.positions, self.bounds)]
        numbers = [int(self.total), int(self.heads), 0, int(self.pieces)]
        return stack_of(function, grid, [*pointers, *where, *numbers], options, self.rows[0])

    # -- launches ---------------------------------------------------------------------------

    def run(
        self, start: list[Tensor], end: list[Tensor], kept: list[Tensor], *,
        out: Tensor | None = None, keep: bool = False, piece: int = 0,
    ) -> None:  # fmt: skip
        """Fill the output and the final states, or (no ``out``) the states at a piece's chunks."""
        read = out is not None
        if self.kernel.divides(self.cutting.chosen) and out is not None:
            return divided.run(self, start, end, kept, out, keep=keep)
        if self.kernel.along and not read:  # where the memories stand meanwhile
            memories = self.sequences * self.heads
            end = [buffers.empty((memories, *x.shape[1:]), x) for x in start]
        pointers = [*map(buffers.guarded, self.rows), self.rows[0] if out is None else out]
        for before, after, place in zip(start, end, kept, strict=True):
            pointers += [buffers.guarded(before), after, place]
        pointers += self._scratch(gradient=False)
        self._start(self.kernel.forward, pointers, piece, {"KEEP": keep, "READ": read})

    def back(
        self, kept: list[Tensor], d_out: Tensor, d_states: list[Tensor],
        found: dict[str, Tensor], piece: int,
    ) -> list[Tensor]:  # fmt: skip
        """Return the gradients of the states before a piece; put those of its rows in ``found``."""
        start = self.parts_of(d_states)
        end = [buffers.empty(tuple(x.shape), x) for x in start]
        pointers = [buffers.guarded(x) for x in (*self.rows, d_out, *kept)]
        for before, after in zip(start, end, strict=True):
            pointers += [buffers.guarded(before), after]
        pointers += [found[name] for name in self.kernel.gradients]
        pointers += self._scratch(gradient=True)
        self._start(self.kernel.backward, pointers, piece, self._lean())
        return self.wholes_of(end)

    def _scratch(self, *, gradient: bool) -> list[Tensor]:
        """Make a kernel's scratch memory: rows [M · n · C, K] along each axis, matrices
        [M · n · V, K]; once for each block of values what has no values. A gradient that is not
        lean stores nothing."""
        like, constants = self.rows[0], self.constants()
        constants[""] = constants.get("SOURCES", constants["C"]) if self.kernel.chunked else 1
        memories = self.sequences * self.heads * (1 if self.stores else 0)
        found = []
        for sizes, count in self._stored(gradient=gradient):
            number = memories * count * (1 if self.splits(sizes) else self.blocks)
            rows, columns = (constants[size] for size in ("", *sizes)[-2:])
            found.append(buffers.empty((number * rows, columns), like, _real(like.dtype)))
        return found

    @property
    def stores(self) -> bool:
        """Whether the cut needs scratch memory: it loops over blocks, or is as lean as can be."""
        return bool(self.kernel.along) or self.cutting.chosen.lean == LEANEST

    def gradients(self) -> dict[str, Tensor]:
        """Make room for the gradients of rows, by name; where blocks share one, for each a part."""
        real, found = _real(self.rows[0].dtype), {}
        for row, x in zip(self.kernel.rows, self.rows, strict=True):
            if row.name in self.kernel.gradients:
                parts = () if self.splits(row.sizes) else (self.blocks,)
                made = buffers.empty((*parts, *x.shape), x, real)
                found[row.name] = made.zero_() if row.shared else made
        return found

    def joined(self, name: str, x: Tensor) -> Tensor:
        """Return the gradient of the rows ``name``, with the partial sums of blocks added up."""
        sizes = next(row.sizes for row in self.kernel.rows if row.name == name)
        return x if self.splits(sizes) else x.sum(0)

    def _start(
        self, function: Any, pointers: list[Tensor], piece: int, flags: Mapping[str, int]
    ) -> None:
        options = {**self.constants(), **flags, **self.options()}
        self.start(function, self.grid, pointers, options, piece)

    def start(
        self, function: Any, grid: tuple[int, int], pointers: list[Tensor],
        options: dict[str, Any], piece: int = 0,
    ) -> None:  # fmt: skip
        """Launch a kernel; behind its pointers come the arguments that say where sequences lie."""
        if self.dry:
            return
        with torch.cuda.device_of(pointers[0]):  # Triton launches on the current device
            numbers = [self.total, self.heads, piece, self.pieces]
            given = [*pointers, self.positions, self.bounds, *numbers]
            begin(function, grid, given, options)

    # -- sizes ------------------------------------------------------------------------------

    @property
    def like(self) -> Tensor:
        """An argument that has no rows before the first, so that its shape is [B, R, H, …]."""
        given = zip(self.kernel.rows, self.rows, strict=True)
        return next(x for row, x in given if not row.shared)

    @property
    def divided_gradient(self) -> divided.Gradient | None:
        """The kernels of the gradient, if it and the form run in several."""
        divides = self.kernel.divides(self.cutting.chosen)
        found = self.kernel.divided
        return found.gradient if divides and found is not None else None

    @property
    def real(self) -> torch.dtype:
        """The type in which the kernel computes."""
        return _real(self.rows[0].dtype)

    @property
    def total(self) -> int:
        """The number of rows in each row of the batch."""
        return self.like.shape[1]

    @property
    def heads(self) -> int:
        """The number of memories of a sequence."""
        return self.rows[0].shape[2]

    @property
    def sequences(self) -> int:
        """How many sequences there are."""
        return self.rows[0].shape[0] if self.bounds is None else self.bounds.shape[0] - 1

    @property
    def pieces(self) -> int:
        """Pieces of the longest sequence, at most."""
        rows, piece = self.cutting.rows if self.kernel.chunked else 1, self.cutting.piece
        longest = self.total if self.bounds is None else self.cutting.longest or self.total
        chunks = (longest + rows - 1) // rows
        return (chunks + (1 if self.cutting.aligned else 0) + piece - 1) // piece

    @property
    def slots(self) -> int:
        """An upper bound of the pieces of all sequences, as ``tiles.slot_of`` counts them."""
        if self.bounds is None:
            return self.sequences * self.pieces
        rows = self.cutting.rows if self.kernel.chunked else 1
        return self.total // (rows * self.cutting.piece) + 2 * self.sequences

    @property
    def blocks(self) -> int:
        """How many programs share a memory."""
        split = self.kernel.split
        return -(-self.sizes[split] // self._block(split)) if split else 1

    @property
    def grid(self) -> tuple[int, int]:
        """The grid: memories by blocks of their values, or sequences by blocks of lanes."""
        if self.kernel.lanes:
            return self.sequences, -(-self.heads // LANES)
        return self.sequences * self.heads, self.blocks

    def constants(self) -> dict[str, Any]:
        """Return the constants that a kernel is compiled with: block sizes and types."""
        return dict(self._constants)

    @cached_property
    def _constants(self) -> dict[str, Any]:
        import triton.language as tl

        dtype, cutting = self.rows[0].dtype, self.cutting
        real = tl.float64 if dtype == torch.float64 else tl.float32
        if self.kernel.lanes:
            return {"LANES": LANES, "PIECE": cutting.piece, "REAL": real}
        found: dict[str, Any] = {}
        for name, size in self.sizes.items():
            found |= {name: size, f"B{name}": self._block(name)}
        found["C"] = max(16, power_of_two(cutting.rows))
        if any(row.view in ("tail", "slots", "band") for row in self.kernel.rows):
            found["SOURCES"] = self.kernel.sources(cutting.rows)
        found |= {"ROWS": cutting.rows, "STEPS": self.kernel.steps, "PIECE": cutting.piece}
        return found | {"ALIGNED": cutting.aligned, "PRECISION": PRECISIONS[dtype], "REAL": real}

    def _lean(self) -> dict[str, int]:
        """Return the flag of how much a gradient reloads; none for lanes of single numbers, which
        never do, nor for tokens whose memories are looped over by blocks, which always do."""
        kernel = self.kernel
        fixed = kernel.lanes or (kernel.along and not kernel.chunked)
        return {} if fixed else {"LEAN": self.cutting.chosen.lean}

    def options(self) -> dict[str, Any]:
        """Return how a program is spread over the device."""
        return self.cutting.chosen.options

    def _block(self, name: str) -> int:
        """Return how many entries a tile has along an axis."""
        least = 16 if self.kernel.chunked or self.kernel.products else 1
        block = max(least, power_of_two(self.sizes[name]))
        return min(block, self.cutting.chosen.block) if name in self.kernel.blocked else block

    # -- parts of blocks --------------------------------------------------------------------

    def splits(self, sizes: tuple[str, ...]) -> bool:
        """Return whether each block of values has its own entries of a tensor with these sizes."""
        return not self.kernel.split or self.kernel.split in sizes

    def parts_of(self, d_states: list[Tensor]) -> list[Tensor]:
        """Return the states' gradients by block; a shared one for the first, zero for others."""
        return [self._parts(s, x) for s, x in zip(self.kernel.states, d_states, strict=True)]

    def wholes_of(self, d_states: list[Tensor]) -> list[Tensor]:
        """Return the states' gradients, with the partial sums of what all blocks share added up."""
        named = zip(self.kernel.states, d_states, strict=True)
        return [x if self.splits(state.sizes) else x.sum(0) for state, x in named]

    def _parts(self, state: Held, x: Tensor) -> Tensor:
        if self.splits(state.sizes):
            return x.contiguous()
        parts = x.new_zeros(self.blocks, *x.shape)
        parts[0] = x
        return parts


def _any_length(rows: list[Tensor]) -> bool:
    """Return whether an argument has a symbolic size, in a graph that is traced."""
    return any(isinstance(size, torch.SymInt) for x in rows for size in x.shape[:3])


def _real(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
