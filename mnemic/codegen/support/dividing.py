"""The choice between one kernel and several for a form, and the cut of the several.

The cycles of both are counted: of one, the waves of its programs, each with its chunks in turn; of
several, the waves of those that run chunks in parallel, those of the scan, whose iterations are
shorter, and the bytes that pass between them. The fewer cycles win.
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
"""Chunks of a piece, for which a gradient in one kernel takes two launches."""

BESIDE = 0.3
"""How much longer an iteration takes for each further program that shares a multiprocessor."""

HELD = 16_384
"""Bytes of shared memory that a program takes apart from the buffers of its loads."""

SPARE = 8_192
"""Bytes of shared memory that a scan must leave free, since its needs are only estimated."""

BYTES = 15
"""Bytes a cycle and multiprocessor, from the device's memory."""

SHOWN = 0.1
"""The share of overlapped work that still counts, so that of two ways with as many bytes the one
with less work is taken."""

WARPS = 4
"""Warps of each of the kernels: a warp group."""

STAGES, SOONER = (2, 3), 0.8
"""A scan's pipeline stages, whose loads begin one or two iterations ahead where shared memory holds
them; and the share of an iteration's cycles that is then left."""


PARALLEL = (0, WARPS, 2 * WARPS)
"""Warps to try for the kernels that run all chunks in parallel; 0: one kernel does everything."""


class Argument(Sized, Protocol):
    """An argument by row."""

    @property
    def name(self) -> str:
        """Its name."""


class Dividable(Cuttable, Protocol):
    """What the model needs to know of a kernel to choose between it and several."""

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
    """Choose the best cut of several kernels, or ``one``, that of one kernel, if it takes fewer
    cycles: for a form or (with ``gradient``) for a form and its gradient.

    ``most`` is how many rows a chunk may have; ``always`` forces several (true) or one (false).
    """
    tall = [rows for rows in ROWS if rows <= most] or ([most] if always else [])
    if kernel.divided is None or always is False or not tall:
        return one
    widest = power_of_two(sizes[kernel.split]) if kernel.split else 0
    wide = [n for n in BLOCKS if n <= max(widest, BLOCKS[-1])] if kernel.split else BLOCKS[:1]
    cuts = [Configuration(rows, block, WARPS, stages, parallel=WARPS)
            for rows, block, stages in product(tall, wide, STAGES)]  # fmt: skip
    best = min(cuts, key=lambda cut: in_several(kernel, sizes, device, work, cut, gradient))
    if always:
        return best
    fewest = in_several(kernel, sizes, device, work, best, gradient)
    return best if fewest < in_one(kernel, sizes, device, work, one, gradient) else one


def in_one(
    kernel: Dividable, sizes: dict[str, int], device: Limits, work: Work, cut: Configuration,
    gradient: bool = False,
) -> float:  # fmt: skip
    """Count a form's cycles in one kernel; its gradient recomputes the states of all chunks."""
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
    moved = programs * steps * rows / (BYTES * device.processors)
    return _together(serial, moved) + STARTED * launches


def in_several(
    kernel: Dividable, sizes: dict[str, int], device: Limits, work: Work, cut: Configuration,
    gradient: bool = False,
) -> float:  # fmt: skip
    """Count a form's cycles in several kernels, and (with ``gradient``) its gradient's."""
    found = kernel.divided
    assert found is not None
    length = lengths(kernel, sizes, cut)
    chunks = -(-work.length // kernel.fits(cut.rows))
    count = Count(kernel, sizes, length, device, work, chunks, cut.stages)
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
    """What cycles are counted from: lengths of axes by name, chunks of a memory, and how many
    iterations of a scan keep their loads at once."""

    kernel: Dividable
    sizes: dict[str, int]
    length: dict[str, int]
    device: Limits
    work: Work
    chunks: int
    stages: int = STAGES[0]

    def bytes(self, sizes: tuple[str, ...]) -> int:
        """Count the bytes of a tile, that of one chunk."""
        return _bytes(sizes, self.length, self.work)

    def rows(self, names: tuple[str, ...]) -> int:
        """Count the bytes of the arguments with these names, for one chunk."""
        rows = {row.name: row.sizes for row in self.kernel.rows}
        return sum(self.bytes(("C", *rows[name])) for name in names if name in rows)

    def parallel(self, body: Body, moved: int, *, started: bool) -> float:
        """Count the cycles of a kernel that takes chunks in parallel, with all channels; where it
        is ``started`` in addition, with those of that start."""
        whole = self.length | {size: power_of_two(n) for size, n in self.sizes.items()}
        programs = self.work.memories * self.chunks
        cycles = _waves(programs, self.device, 2) * body.cycles(whole, pipelined=False)
        return _together(cycles, self._moved(programs * moved)) + STARTED * started

    def scan(self, body: Body, moved: int, *, started: bool) -> float:
        """Count the cycles of a kernel that goes from chunk to chunk, a program a block of values;
        return infinity where its loads do not fit into shared memory."""
        blocks = _blocks(self.kernel, self.sizes, self.length)
        taken = HELD + self.stages * moved
        if self.stages > STAGES[0] and taken + SPARE > self.device.shared:
            return float("inf")
        beside = 2 if 2 * taken <= self.device.shared else 1
        cycles = _waves(self.work.memories * blocks, self.device, beside) * self.chunks
        cycles *= body.cycles(self.length, pipelined=True)
        cycles *= SOONER if self.stages > STAGES[0] else 1
        through = self._moved(self.work.memories * blocks * self.chunks * moved)
        return _together(cycles, through) + STARTED * started

    def _moved(self, moved: int) -> float:
        """Count the cycles that so many bytes take."""
        return moved / (BYTES * self.device.processors)


def _together(cycles: float, moved: float) -> float:
    """Return the cycles of work and bytes at once: the longer, and a share of the shorter."""
    return max(cycles, moved) + SHOWN * min(cycles, moved)


def _waves(programs: int, device: Limits, beside: int) -> float:
    """Count the waves of programs, as if each had a multiprocessor to itself."""
    beside = min(beside, max(1, programs // device.processors))
    return -(-programs // (device.processors * beside)) * (1 + BESIDE * (beside - 1))


def _blocks(kernel: Dividable, sizes: Mapping[str, int], length: Mapping[str, int]) -> int:
    return -(-sizes[kernel.split] // length[kernel.split]) if kernel.split else 1


def _bytes(sizes: tuple[str, ...], length: Mapping[str, int], work: Work) -> int:
    return work.bytes * volume([length[size] for size in sizes])


# -- kernels that spill ------------------------------------------------------------------------

FEW_PARALLEL, FEW_SCANNED = 2_048, 256
"""Bytes of a thread that count as none. By a simulation of machine code two programs of four warps
a multiprocessor took less time than one of eight whatever they spilled, up to half of it; but it
does not know that the first-level cache holds no more than so much of what they spill: on an H200
``kda``'s kernel of 32 rows, with 2.6 KB, took 15.2 ms where that of 16 rows, with less than 2 KB,
took 6.8 (``benchmarks/results/gpu/h200.json``). A scan of 64 channels took less than two of 32."""

WORTH = 8
"""How many times less a thread has to spill with twice the warps, for a program that then has a
multiprocessor to itself."""

Spilled = Callable[[Configuration], Mapping[str, int]]
"""Bytes of registers that a thread of each kernel spills at a cut, by the kernels' names."""

_settled: dict[Hashable, Configuration] = {}
"""The cuts of launches alike."""


def settled(
    cut: Configuration, parallel: Spilled, scan: Spilled, alike: Hashable
) -> Configuration:  # fmt: skip
    """Find the cut whose kernels spill few registers, or the fewest.

    The scan gets narrower blocks, and if anything still spills, all get fewer rows; then the
    kernels that run chunks in parallel get twice the warps, where that helps. If more than
    ``HOPELESS`` still spills, one kernel is to do all.
    """
    key = (cut, alike)
    if key not in _settled:
        found, behind = dict[Configuration, int](), dict[Configuration, int]()
        for tall in (cut, *narrower((fewer_rows,), cut)):
            spilt = sum(_beyond(FEW_PARALLEL, parallel(tall)).values())
            own, left = least(
                tall, narrower((narrower_block,), tall),
                lambda cut: sum(_beyond(FEW_SCANNED, scan(cut)).values()),
            )  # fmt: skip
            found[own], behind[own] = spilt + left, left
            if not found[own]:
                break
        best = min(found, key=lambda own: found[own])
        _settled[key] = _doubled(best, parallel, behind[best]) if found[best] else best
    return _settled[key]


def _doubled(cut: Configuration, parallel: Spilled, left: int) -> Configuration:
    """Give kernels that spill much twice the warps, where they then spill far less; fall back to
    one kernel if these and the scan, which spills ``left``, still spill hopelessly much."""
    now = parallel(cut)
    much = tuple(_beyond(FEW_PARALLEL, now))
    then = parallel(replace(cut, doubled=much))
    doubled = tuple(name for name in much if WORTH * then[name] <= now[name])
    spilt = {name: (then if name in doubled else now)[name] for name in now}
    left += sum(_beyond(FEW_PARALLEL, spilt).values())
    return replace(cut, parallel=0) if left > HOPELESS else replace(cut, doubled=doubled)


def _beyond(few: int, spilled: Mapping[str, int]) -> dict[str, int]:
    """Return the kernels that spill more than ``few`` bytes, and by how much they exceed it."""
    return {name: count - few for name, count in spilled.items() if count > few}
