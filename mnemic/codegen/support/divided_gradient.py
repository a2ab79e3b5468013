"""A gradient in three kernels: what no state's gradient reaches, their scan, and the rest.

The form has kept the state at each chunk's start. The first and the last kernel have a program for
each chunk, which takes the values block by block; the scan goes from the last chunk to the first
and stores the gradients of the states after each chunk.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import buffers
from .bodies import Body
from .divided import Tile, constants_of, empty, grid_of_chunks, name_of, type_of, widest
from .sizes import volume

if TYPE_CHECKING:
    from .dividing import Count
    from .launch import Launch

BLOCK, STAGES = 2_048, 2
"""Entries of a chunk's rows and the values that a program of what is parallel takes at once, and of
how many such blocks loads are begun: what is summed over values is held beside a block of them."""

HELD = 512
"""Numbers of sums over values that a thread holds (twice what registers hold), from which on a
program gets twice the warps, whatever it spills."""

MOST_WARPS = 8
"""Warps of a program at most."""


@dataclass(frozen=True)
class Part:
    """One of the kernels: its arguments by row, the tiles that it loads and stores, its work for a
    chunk, and the sizes of the sums over values that it accumulates."""

    kernel: Any
    rows: tuple[str, ...]
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    body: Body
    sums: tuple[tuple[str, ...], ...] = ()

    def warps(self, constants: dict[str, Any], warps: int) -> int:
        """Return a program's warps: ``warps``, or twice that if its sums exceed registers."""
        held = sum(volume([constants["C" if s == "C" else f"B{s}"] for s in sizes])
                   for sizes in self.sums)  # fmt: skip
        return 2 * warps if warps < MOST_WARPS and held >= HELD * 32 * warps else warps


@dataclass(frozen=True)
class DividedGradient:
    """The kernels that a gradient is divided into, all tiles between them, and the work of a chunk
    in a single kernel."""

    scan: Part
    rest: Part
    tiles: tuple[Tile, ...]
    body: Body
    parallel: Part | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The kernels in the order in which they run."""
        return (*((self.parallel,) if self.parallel else ()), self.scan, self.rest)

    # -- states that the form keeps ------------------------------------------------------------

    def kept(self, launch: "Launch", places: int) -> list[Tensor]:
        """Make room for the states at each chunk's start, [places, …] each.

        A state that kernels only take as an operand of 16 bits is stored as such, two numbers in
        the place of one: torch was told the number's type before the cut was known.
        """
        found = []
        for state, dtype in zip(launch.kernel.states, self.types(launch), strict=True):
            sizes = tuple(launch.sizes[size] for size in state.sizes)
            whole = places if dtype == launch.real else -(-places // 2)
            found.append(buffers.empty((whole, *sizes), launch.rows[0], launch.real))
        return found

    def as_stored(self, launch: "Launch", states: list[Tensor]) -> list[Tensor]:
        """Return the kept states, viewed in the type in which they are stored."""
        return [x if dtype == x.dtype else x.view(-1).view(dtype).view(-1, *x.shape[1:])
                for x, dtype in zip(states, self.types(launch), strict=True)]  # fmt: skip

    def types(self, launch: "Launch") -> list[torch.dtype]:
        """Return the types in which states are stored."""
        tiles = {tile.name: tile for tile in self.tiles}
        return [type_of(launch, tiles[s.name]) if s.name in tiles else launch.real
                for s in launch.kernel.states]  # fmt: skip

    # -- launches ------------------------------------------------------------------------------

    def run(self, launch: "Launch", states: list[Tensor], ends: list[Tensor]) -> list[Tensor]:
        """Return the gradients of the rows that have one, then of the states before all chunks:
        from kept ``states``, and ``ends``, the gradients of the output and the final states."""
        d_out, *d_states = ends
        own, known = own_of(launch), {tile.name: tile for tile in self.tiles}
        names = (state.name for state in launch.kernel.states)
        given = map(buffers.guarded, self.as_stored(launch, states))
        tiles = dict(zip(names, given, strict=True))
        start = launch.parts_of(d_states)
        end = [buffers.empty(tuple(x.shape), x) for x in start]
        gradients = self._gradients(launch)
        for part in self.parts:
            stored = {name: self._room(launch, part, known[name]) for name in part.stores}
            pointers = [buffers.guarded(own.get(name, d_out)) for name in part.rows]
            pointers += [tiles[name] for name in part.loads]
            if part is self.scan:
                for before, after in zip(start, end, strict=True):
                    pointers += [buffers.guarded(before), after]
            pointers += stored.values()
            pointers += gradients.values() if part is self.rest else ()
            grid, options = self._how(launch, part)
            launch.start(part.kernel, grid, pointers, options)
            tiles |= {name: _whole(launch, known[name], x) for name, x in stored.items()}
        return [*self._of_rows(launch, gradients), *launch.wholes_of(end)]

    def _gradients(self, launch: "Launch") -> dict[str, Tensor]:
        """Make room for what the last kernel stores, by argument."""
        own = own_of(launch)
        return {n: buffers.empty(tuple(own[n].shape), own[n]) for n in launch.kernel.gradients}

    def _of_rows(self, launch: "Launch", gradients: dict[str, Tensor]) -> list[Tensor]:
        """Return the gradients of rows, of what the last kernel has stored."""
        return list(gradients.values())

    def _stored_types(self, launch: "Launch") -> list[torch.dtype]:
        """Return the types of what the last kernel stores."""
        own = own_of(launch)
        return [own[name].dtype for name in launch.kernel.gradients]

    def spilled(self, launch: "Launch", *, scanned: bool) -> dict[str, int]:
        """Count the bytes of registers that a thread spills, by the kernels' names: of the scan if
        ``scanned``, else of the kernels that run chunks in parallel."""
        parts = [part for part in self.parts if (part is self.scan) == scanned]
        return {name_of(part.kernel): self._spilled(launch, part) for part in parts}

    def _spilled(self, launch: "Launch", part: Part) -> int:
        known = {tile.name: tile for tile in self.tiles}
        own = own_of(launch)
        states = [launch.real for _ in launch.kernel.states]
        pointers = [own.get(name, launch.like).dtype for name in part.rows]
        pointers += [type_of(launch, known[name]) for name in part.loads]
        pointers += 2 * states if part is self.scan else []
        pointers += [self._stored_in(launch, part, known[name]) for name in part.stores]
        pointers += self._stored_types(launch) if part is self.rest else []
        grid, options = self._how(launch, part)
        return launch.stack(part.kernel, grid, pointers, options)

    def _how(self, launch: "Launch", part: Part) -> tuple[tuple[int, int], dict[str, Any]]:
        """Return grid and options; a program of a parallel kernel loops over blocks of values."""
        if part is self.scan:
            constants = constants_of(part.kernel, launch.constants())
            return launch.grid, {**constants, **launch.options()}
        constants, split = widest(launch), launch.kernel.split
        if split:
            constants[f"B{split}"] = min(constants[f"B{split}"], BLOCK // constants["C"])
        asked = launch.cutting.chosen.parallel_warps(name_of(part.kernel))
        warps = part.warps(constants, asked)
        own = {"num_warps": warps, "num_stages": STAGES}
        return grid_of_chunks(launch), {**constants_of(part.kernel, constants), **own}

    # -- tiles between kernels -----------------------------------------------------------------

    def _in_parts(self, launch: "Launch", part: Part, tile: Tile) -> bool:
        """Return whether blocks of values store partial sums: of a scan's tile without values."""
        return part is self.scan and not launch.splits(tile.sizes)

    def _stored_in(self, launch: "Launch", part: Part, tile: Tile) -> torch.dtype:
        return launch.real if self._in_parts(launch, part, tile) else type_of(launch, tile)

    def _room(self, launch: "Launch", part: Part, tile: Tile) -> Tensor:
        """Make room for a tile of every chunk, or for the partial sums of its blocks."""
        if not self._in_parts(launch, part, tile):
            return empty(launch, tile)
        known = {**launch.constants(), **launch.sizes}
        shape = (launch.slots * launch.heads, launch.blocks, *(known[size] for size in tile.sizes))
        return buffers.empty(shape, launch.rows[0], launch.real)

    # -- the choice ----------------------------------------------------------------------------

    def cycles(self, count: "Count") -> float:
        """Count the cycles of the kernels, one after another."""
        sizes, found = {tile.name: tile.sizes for tile in self.tiles}, 0.0
        for part in self.parts:
            moved = sum(count.bytes(sizes[name]) for name in (*part.loads, *part.stores))
            moved += count.rows(part.rows) * (2 if part is self.rest else 1)
            cycles = count.scan if part is self.scan else count.parallel
            found += cycles(part.body, moved, started=True)
        return found


def own_of(launch: "Launch") -> dict[str, Tensor]:
    """Return the launch's arguments by row, as a mapping from their names."""
    return {row.name: x for row, x in zip(launch.kernel.rows, launch.rows, strict=True)}


def _whole(launch: "Launch", tile: Tile, x: Tensor) -> Tensor:
    """Return a tile; if blocks of values stored partial sums, add them up."""
    return x if x.ndim == 1 + len(tile.sizes) else x.sum(1).to(type_of(launch, tile))
