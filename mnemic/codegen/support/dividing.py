"""Whether a form runs in one kernel or in several, and how those are cut, before they ever run.

Both ways are counted: of one kernel the waves of its programs, each with its chunks one after
another; of several the waves of what is computed in parallel, a program a chunk, then those of the
scan, whose turns are shorter, and what is handed from one to the other. The fewer cycles win.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

from .bodies import Body
from .configuration import BLOCKS, ROWS, Configuration, Cuttable, Sized, Work, lengths
from .divided import Divided
from .limits import Limits
from .narrower import HOPELESS, fewer_rows, least, narrower, narrower_block
from .sizes import power_of_two, volume

STARTED = 5_000
"""Cycles to start one more kernel."""

PIECE = 16
"""Chunks for which a gradient in one kernel has two launches."""

BESIDE = 0.3
"""How much longer a turn takes for each program more that shares a multiprocessor."""

HELD = 16_384
"""Bytes of shared memory that a program takes beside what its loads are kept in."""

BYTES = 15
"""A cycle and multiprocessor, from the device's memory."""

WARPS, STAGES = 4, 2
"""Of each of the kernels: a warp group, and loads begun a turn before."""


PARALLEL = (0, WARPS, 2 * WARPS)
"""Warps of what no state reaches that may be tried; 0: one kernel does all."""


class Argument(Sized, Protocol):
    """An argument by row."""

    @property
    def name(self) -> str:
        """Its name."""


class Dividable(Cuttable, Protocol):
    """What the model needs to know of a kernel."""

    @property
    def rows(self) -> tuple[Argument, ...]:
        """Its arguments by row."""

    @property
    def divided(self) -> Divided | None:
        """The kernels that it is divided into."""


def divided_cut(
    kernel: Dividable, sizes: dict[str, int], device: Limits, work: Work, one: Configuration, *,
    most: int, always: bool | None, gradient: bool = False,
) -> Configuration:  # fmt: skip
    """The cut of several kernels with the fewest cycles, or ``one`` where that has fewer: of a form
    or (with ``gradient``) of a form and its gradient.

    ``most`` is how many rows a chunk may have; ``always`` forces either way.
    """
    tall = [rows for rows in ROWS if rows <= most] or ([most] if always else [])
    if kernel.divided is None or always is False or not tall:
        return one
    widest = power_of_two(sizes[kernel.split]) if kernel.split else 0
    wide = [n for n in BLOCKS if n <= max(widest, BLOCKS[-1])] if kernel.split else BLOCKS[:1]
    cuts = [Configuration(rows, block, WARPS, STAGES, parallel=WARPS)
            for rows, block in product(tall, wide)]  # fmt: skip
    best = min(cuts, key=lambda cut: in_several(kernel, sizes, device, work, cut, gradient))
    if always:
        return best
    fewest = in_several(kernel, sizes, device, work, best, gradient)
    return best if fewest < in_one(kernel, sizes, device, work, one, gradient) else one


def in_one(
    kernel: Dividable, sizes: dict[str, int], device: Limits, work: Work, cut: Configuration,
    gradient: bool = False,
) -> float:  # fmt: skip
    """Cycles of a form in one kernel; with its gradient the states of all chunks are made anew."""
    assert kernel.divided is not None
    length = lengths(kernel, sizes, cut)
    steps = -(-work.length // kernel.fits(cut.rows))
    programs = work.memories * _blocks(kernel, sizes, length)
    bodies, back = [kernel.divided.body], kernel.divided.gradient
    if gradient and back is not None:
        bodies += [kernel.divided.body, back.body]
    serial = _waves(programs, device, 1) * steps
    serial *= sum(body.cycles(length, pipelined=False) for body in bodies)
    rows = sum(_bytes(("C", *row.sizes), length, work) for row in kernel.rows)
    rows *= (2 * len(bodies) - 1) if gradient else 1  # a gradient's rows are written in 32 bits
    launches = 2 * -(-steps // PIECE) if gradient else 0
    return max(serial, programs * steps * rows / (BYTES * device.processors)) + STARTED * launches


def in_several(
    kernel: Dividable, sizes: dict[str, int], device: Limits, work: Work, cut: Configuration,
    gradient: bool = False,
) -> float:  # fmt: skip
    """Cycles of a form in several kernels, with its gradient in several more."""
    found = kernel.divided
    assert found is not None
    length = lengths(kernel, sizes, cut)
    chunks = -(-work.length // kernel.fits(cut.rows))
    count = Count(kernel, sizes, length, device, work, chunks)
    tiles = sum(count.bytes(tile.sizes) for tile in found.tiles)
    rows = (count.rows(names) for names in (found.parallel_rows, found.scan_rows))
    first, second = (tiles + own for own in rows)
    cycles = count.parallel(found.parallel_body, first, started=True)
    cycles += count.scan(found.scan_body, second, started=False)
    if gradient and found.gradient is not None:
        cycles += found.gradient.cycles(count)
    return cycles


@dataclass(frozen=True)
class Count:
    """What a cut of several kernels is counted of: lengths of axes by name, chunks a memory."""

    kernel: Dividable
    sizes: dict[str, int]
    length: dict[str, int]
    device: Limits
    work: Work
    chunks: int

    def bytes(self, sizes: tuple[str, ...]) -> int:
        """Bytes of a chunk's tile."""
        return _bytes(sizes, self.length, self.work)

    def rows(self, names: tuple[str, ...]) -> int:
        """Bytes of a chunk's arguments of these names."""
        rows = {row.name: row.sizes for row in self.kernel.rows}
        return sum(self.bytes(("C", *rows[name])) for name in names if name in rows)

    def parallel(self, body: Body, moved: int, *, started: bool) -> float:
        """Cycles of a kernel that takes chunks in parallel, with all channels; and to its start,
        where one kernel has none."""
        whole = self.length | {size: power_of_two(n) for size, n in self.sizes.items()}
        programs = self.work.memories * self.chunks
        cycles = _waves(programs, self.device, 2) * body.cycles(whole, pipelined=False)
        return max(cycles, self._moved(programs * moved)) + STARTED * started

    def scan(self, body: Body, moved: int, *, started: bool) -> float:
        """Cycles of a kernel that goes from chunk to chunk, a program a block of values."""
        blocks = _blocks(self.kernel, self.sizes, self.length)
        beside = 2 if 2 * (HELD + STAGES * moved) <= self.device.shared else 1
        cycles = _waves(self.work.memories * blocks, self.device, beside) * self.chunks
        cycles *= body.cycles(self.length, pipelined=True)
        cycles = max(cycles, self._moved(self.work.memories * blocks * self.chunks * moved))
        return cycles + STARTED * started

    def _moved(self, moved: int) -> float:
        """Cycles of so many bytes."""
        return moved / (BYTES * self.device.processors)


def _waves(programs: int, device: Limits, beside: int) -> float:
    """Turns of programs one after another, as if each had a multiprocessor to itself."""
    beside = min(beside, max(1, programs // device.processors))
    return -(-programs // (device.processors * beside)) * (1 + BESIDE * (beside - 1))


def _blocks(kernel: Dividable, sizes: Mapping[str, int], length: Mapping[str, int]) -> int:
    return -(-sizes[kernel.split] // length[kernel.split]) if kernel.split else 1


def _bytes(sizes: tuple[str, ...], length: Mapping[str, int], work: Work) -> int:
    return work.bytes * volume([length[size] for size in sizes])


# -- kernels that spill ------------------------------------------------------------------------

FEW_PARALLEL, FEW_SCANNED = 512, 256
"""Bytes of a thread that count as none. By a simulation of machine code two programs of four warps
a multiprocessor that spill so much were up to twice as fast as one of eight that spills nothing,
and a scan of 64 channels took less than two of 32."""


Spilled = Callable[[Configuration], int]
"""Bytes of registers that a thread spills at a cut."""

_settled: dict[Hashable, Configuration] = {}
"""The cuts of launches alike."""


def settled(
    cut: Configuration, parallel: Spilled, scan: Spilled, alike: Hashable
) -> Configuration:  # fmt: skip
    """Find the cut whose kernels spill few registers, or the fewest.

    What is parallel has more warps, the scan narrower blocks, and if that does not help both have
    fewer rows. Where the fewest are ``HOPELESS`` nothing is parallel: one kernel is to do all.
    """
    key = (cut, alike)
    if key not in _settled:
        found: dict[Configuration, int] = {}
        for tall in (cut, *narrower((fewer_rows,), cut)):
            wide, spilt = least(
                tall, narrower((_more_parallel,), tall), _beyond(FEW_PARALLEL, parallel)
            )
            own, left = least(wide, narrower((narrower_block,), wide), _beyond(FEW_SCANNED, scan))
            found[own] = spilt + left
            if not found[own] or len(found) > 1:
                break
        best = min(found, key=lambda own: found[own])
        _settled[key] = replace(best, parallel=0) if found[best] > HOPELESS else best
    return _settled[key]


def _beyond(few: int, spilled: Spilled) -> Spilled:
    """Count the bytes that are more than a few."""
    return lambda cut: max(0, spilled(cut) - few)


def _more_parallel(cut: Configuration) -> Configuration:
    """Twice the warps of what is computed in parallel."""
    return replace(cut, parallel=min(2 * cut.parallel, 2 * WARPS))
