"""A form in two kernels: one runs chunks in parallel, one scans what depends on the state.

The first stores the results of its products, a tile for each chunk, and the scan loads these.
"""

from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from . import buffers
from .bodies import Body
from .sizes import power_of_two

if TYPE_CHECKING:
    from .launch import Launch

MOST = 65_535
"""Programs along the second axis of a grid."""


@dataclass(frozen=True)
class Tile:
    """A tensor that one kernel stores for the next, of each chunk: its name and sizes; a
    ``rounded`` one has 16 bits if the call's products have operands of 16 bits."""

    name: str
    sizes: tuple[str, ...]
    rounded: bool


class Gradient(Protocol):
    """The interface of a gradient that runs in several kernels: see ``divided_gradient``."""

    @property
    def body(self) -> Body:
        """The work of a chunk in a single kernel."""

    def kept(self, launch: "Launch", places: int) -> list[Tensor]:
        """Make room for the states at each chunk's start."""

    def types(self, launch: "Launch") -> list[torch.dtype]:
        """Return the types in which states are stored."""

    def as_stored(self, launch: "Launch", states: list[Tensor]) -> list[Tensor]:
        """Return the kept states, viewed in the type in which they are stored."""

    def run(self, launch: "Launch", states: list[Tensor], ends: list[Tensor]) -> list[Tensor]:
        """Return the gradients of the rows that have one, then of the states before all chunks."""

    def spilled(self, launch: "Launch", *, scanned: bool) -> dict[str, int]:
        """Count the bytes of registers that a thread spills, by the kernels' names."""

    def cycles(self, count: Any) -> float:
        """Count the cycles of its kernels, from a ``dividing.Count``."""


@dataclass(frozen=True)
class Divided:
    """The kernels that a form is divided into, the tiles between them, and what each reads."""

    parallel: Any
    scan: Any
    tiles: tuple[Tile, ...]
    parallel_rows: tuple[str, ...]
    scan_rows: tuple[str, ...]
    parallel_body: Body
    scan_body: Body
    body: Body
    """The work of a chunk: in each of the two kernels, and in a single one."""
    gradient: Gradient | None = None
    """The gradient in several kernels, where it has one."""


def run(
    launch: "Launch", start: list[Tensor], end: list[Tensor], kept: list[Tensor], out: Tensor, *,
    keep: bool,
) -> None:  # fmt: skip
    """Launch both kernels; fill the output, the final states and (with ``keep``) each chunk's."""
    found = launch.kernel.divided
    assert found is not None
    tiles = [empty(launch, tile) for tile in found.tiles]
    pointers = [*_rows(launch, found.parallel_rows), *tiles]
    options = _side_by_side(launch, found.parallel)
    launch.start(found.parallel, grid_of_chunks(launch), pointers, options)
    pointers = [*_rows(launch, found.scan_rows), *tiles, out]
    for before, after, place in zip(start, end, kept, strict=True):
        pointers += [buffers.guarded(before), after, place]
    launch.start(found.scan, launch.grid, pointers, _one_by_one(launch, found.scan, keep=keep))


def spilled_in_parallel(launch: "Launch") -> dict[str, int]:
    """Count the bytes of registers that a thread of the parallel kernel spills, by the kernel's
    name."""
    found = launch.kernel.divided
    assert found is not None
    pointers = [*_types(launch, found.parallel_rows), *(type_of(launch, x) for x in found.tiles)]
    options = _side_by_side(launch, found.parallel)
    spilled = launch.stack(found.parallel, grid_of_chunks(launch), pointers, options)
    return {name_of(found.parallel): spilled}


def spilled_in_scan(launch: "Launch", *, keep: bool) -> dict[str, int]:
    """Count the bytes of registers that a thread of the scan spills, by its name."""
    found = launch.kernel.divided
    assert found is not None
    real = torch.float64 if launch.rows[0].dtype == torch.float64 else torch.float32
    pointers = [*_types(launch, found.scan_rows), *(type_of(launch, x) for x in found.tiles)]
    back, states = launch.divided_gradient, len(launch.kernel.states)
    kept = [real] * states if back is None else back.types(launch)
    pointers += [launch.like.dtype, *(x for place in kept for x in (real, real, place))]
    options = _one_by_one(launch, found.scan, keep=keep)
    return {name_of(found.scan): launch.stack(found.scan, launch.grid, pointers, options)}


def name_of(function: Any) -> str:
    """Return the name of a kernel."""
    return str(function.fn.__name__)


def _side_by_side(launch: "Launch", function: Any) -> dict[str, Any]:
    """Return constants and options of a kernel that runs chunks in parallel, with all channels."""
    warps = launch.cutting.chosen.parallel_warps(name_of(function))
    constants = constants_of(function, widest(launch))
    return {**constants, "num_warps": warps, "num_stages": 1}


def _one_by_one(launch: "Launch", function: Any, *, keep: bool) -> dict[str, Any]:
    """Return constants and options of a scan."""
    return {**constants_of(function, {**launch.constants(), "KEEP": keep}), **launch.options()}


def grid_of_chunks(launch: "Launch") -> tuple[int, int]:
    """Return the grid: memories, and programs that share the chunks of each."""
    return launch.sequences * launch.heads, programs(launch)


def empty(launch: "Launch", tile: Tile) -> Tensor:
    """Make room for a tile of every chunk."""
    known = {**launch.constants(), **launch.sizes}
    shape = (launch.slots * launch.heads, *(known[size] for size in tile.sizes))
    return buffers.empty(shape, launch.rows[0], type_of(launch, tile))


def type_of(launch: "Launch", tile: Tile) -> torch.dtype:
    """Return a tile's type: bfloat16 of a ``rounded`` one beside such rows, else 32 or 64 bits."""
    own = launch.rows[0].dtype
    short = tile.rounded and own == torch.bfloat16
    return own if short or own == torch.float64 else torch.float32


def _types(launch: "Launch", names: tuple[str, ...]) -> list[torch.dtype]:
    return [x.dtype for x in _rows(launch, names)]


def widest(launch: "Launch") -> dict[str, Any]:
    """Return a kernel's constants where a program has all channels."""
    found = launch.constants()
    return found | {f"B{size}": max(16, power_of_two(n)) for size, n in launch.sizes.items()}


def programs(launch: "Launch") -> int:
    """Count the programs that share the chunks of a memory: one for each chunk, or, for packed
    documents, so many that all documents together have about one for each chunk."""
    if launch.bounds is None or launch.cutting.longest:
        return max(1, min(MOST, launch.pieces))
    return max(1, min(MOST, -(-launch.slots // launch.sequences)))


def constants_of(function: Any, constants: dict[str, Any]) -> dict[str, Any]:
    """Pick the constants that a kernel takes."""
    known = _taken(function)
    return {name: value for name, value in constants.items() if name in known}


@cache
def _taken(function: Any) -> frozenset[str]:
    """Return the names of what a kernel takes."""
    return frozenset(signature(function.fn).parameters)


def _rows(launch: "Launch", names: tuple[str, ...]) -> list[Tensor]:
    own = dict(zip((row.name for row in launch.kernel.rows), launch.rows, strict=True))
    return [buffers.guarded(own[name]) for name in names]
