"""A gradient in several kernels where a token sees a window: chunks add to each other's rows.

So the kernel that has the gradients of arguments stores what each chunk adds to keys and values as
a tile of its own, in 32 bits, and one more sums the tiles onto the rows.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from . import buffers
from .divided import Tile, constants_of, empty, grid_of_chunks, type_of, widest
from .divided_gradient import DividedGradient, Part
from .dividing import BYTES, STARTED, WARPS

if TYPE_CHECKING:
    from .dividing import Count
    from .launch import Launch


@dataclass(frozen=True)
class SourcedPart(Part):
    """A kernel that reads windows, whose sums may lie along what these read."""

    def warps(self, constants: dict[str, Any], warps: int) -> int:
        """How many warps a program has, where ``warps`` are asked for."""
        return super().warps({**constants, "BSOURCES": constants["SOURCES"]}, warps)


@dataclass(frozen=True)
class OverlappingGradient(DividedGradient):
    """The kernels that a gradient of windows is divided into; ``apart`` are the arguments of which
    each chunk's gradient is a tile, ``sums`` the kernel that sums these."""

    sums: Any = None
    apart: tuple[Tile, ...] = ()

    def run(self, launch: "Launch", states: list[Tensor], ends: list[Tensor]) -> list[Tensor]:
        """The gradients of rows that have one, then of the states before all chunks: of what was
        kept, and of the gradients of the output and of the states at the end."""
        d_out, *d_states = ends
        own, known = _own(launch), {tile.name: tile for tile in self.tiles}
        given = map(buffers.guarded, self.as_stored(launch, states))
        tiles = dict(zip((state.name for state in launch.kernel.states), given, strict=True))
        start = launch.parts_of(d_states)
        end = [buffers.empty(tuple(x.shape), x) for x in start]
        gradients = self._gradients(launch)
        for part in self.parts:
            stored = {name: self._room(launch, part, known[name]) for name in part.stores}
            pointers = [buffers.guarded(own.get(name, d_out)) for name in part.rows]
            pointers += [tiles[name] for name in part.loads]
            if part is self.scan:
                pointers += [x for pair in zip(map(buffers.guarded, start), end, strict=True)
                             for x in pair]  # fmt: skip
            pointers += [*stored.values(), *(gradients.values() if part is self.rest else ())]
            grid, options = self._how(launch, part)
            launch.start(part.kernel, grid, pointers, options)
            tiles |= {name: self._whole(launch, known[name], x) for name, x in stored.items()}
        return [*self._summed(launch, gradients), *launch.wholes_of(end)]

    def _gradients(self, launch: "Launch") -> dict[str, Tensor]:
        """Make room for the gradients of rows, or for each chunk's."""
        own, apart = _own(launch), {tile.name: tile for tile in self.apart}
        return {name: empty(launch, apart[name]) if name in apart
                else buffers.empty(tuple(own[name].shape), own[name])
                for name in launch.kernel.gradients}  # fmt: skip

    def _summed(self, launch: "Launch", gradients: dict[str, Tensor]) -> list[Tensor]:
        """The gradients of rows, of chunks' the sums."""
        own = _own(launch)
        found = {t.name: buffers.empty(tuple(own[t.name].shape), own[t.name]) for t in self.apart}
        pointers = [*(gradients[name] for name in found), *found.values()]
        options = {**constants_of(self.sums, widest(launch)), "num_warps": WARPS, "num_stages": 1}
        launch.start(self.sums, grid_of_chunks(launch), pointers, options)
        return [*(gradients | found).values()]

    def _whole(self, launch: "Launch", tile: Tile, x: Tensor) -> Tensor:
        """A tile, its parts summed where blocks of values have stored such."""
        return x if x.ndim == 1 + len(tile.sizes) else x.sum(1).to(type_of(launch, tile))

    def _spilled(self, launch: "Launch", part: Part) -> int:
        if part is not self.rest:
            return super()._spilled(launch, part)
        own, known = _own(launch), {tile.name: tile for tile in self.tiles}
        apart = {tile.name: type_of(launch, tile) for tile in self.apart}
        pointers = [own[name].dtype if name in own else launch.like.dtype for name in part.rows]
        pointers += [type_of(launch, known[name]) for name in part.loads]
        pointers += [apart.get(name, own[name].dtype) for name in launch.kernel.gradients]
        grid, options = self._how(launch, part)
        return launch.stack(part.kernel, grid, pointers, options)

    def cycles(self, count: "Count") -> float:
        """Cycles of the kernels by count, one after another, and of the sums of tiles."""
        moved = sum(2 * count.bytes(tile.sizes) for tile in self.apart)
        moved *= count.work.memories * count.chunks
        return super().cycles(count) + moved / (BYTES * count.device.processors) + STARTED


def _own(launch: "Launch") -> dict[str, Tensor]:
    return {row.name: x for row, x in zip(launch.kernel.rows, launch.rows, strict=True)}
