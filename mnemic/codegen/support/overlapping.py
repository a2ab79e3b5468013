"""A gradient in several kernels where tokens see windows: chunks add to the same rows.

So the kernel that computes the gradients of arguments stores each chunk's contribution to keys and
values as a separate tile, in 32 bits, and one more kernel sums the tiles onto the rows.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import buffers
from .divided import Tile, constants_of, empty, grid_of_chunks, type_of, widest
from .divided_gradient import DividedGradient, Part, own_of
from .dividing import BYTES, STARTED, WARPS

if TYPE_CHECKING:
    from .dividing import Count
    from .launch import Launch


@dataclass(frozen=True)
class SourcedPart(Part):
    """A kernel that reads windows, whose sums may lie along what these read."""

    def warps(self, constants: dict[str, Any], warps: int) -> int:
        """Return how many warps a program has, where ``warps`` are asked for."""
        return super().warps({**constants, "BSOURCES": constants["SOURCES"]}, warps)


@dataclass(frozen=True)
class OverlappingGradient(DividedGradient):
    """The kernels that a gradient of windows is divided into; ``apart`` are the arguments of which
    each chunk's gradient is a tile, ``sums`` the kernel that sums these."""

    sums: Any = None
    apart: tuple[Tile, ...] = ()

    def _gradients(self, launch: "Launch") -> dict[str, Tensor]:
        """Make room for the gradients of rows, or for each chunk's."""
        return super()._gradients(launch) | {t.name: empty(launch, t) for t in self.apart}

    def _of_rows(self, launch: "Launch", gradients: dict[str, Tensor]) -> list[Tensor]:
        """Return the gradients of rows, those that chunks have apart summed."""
        own = own_of(launch)
        found = {t.name: buffers.empty(tuple(own[t.name].shape), own[t.name]) for t in self.apart}
        pointers = [*(gradients[name] for name in found), *found.values()]
        options = {**constants_of(self.sums, widest(launch)), "num_warps": WARPS, "num_stages": 1}
        launch.start(self.sums, grid_of_chunks(launch), pointers, options)
        return [*(gradients | found).values()]

    def _stored_types(self, launch: "Launch") -> list[torch.dtype]:
        """Return the types of the gradients of rows, or of each chunk's."""
        own, apart = own_of(launch), {tile.name: type_of(launch, tile) for tile in self.apart}
        return [apart.get(name, own[name].dtype) for name in launch.kernel.gradients]

    def cycles(self, count: "Count") -> float:
        """Estimate the cycles of the kernels, one after another, and of the sums of tiles."""
        moved = sum(2 * count.bytes(tile.sizes) for tile in self.apart)
        moved *= count.work.memories * count.chunks
        return super().cycles(count) + moved / (BYTES * count.device.processors) + STARTED
