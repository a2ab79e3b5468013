"""Cycles of kernels → programs, waves and time of calls of some shapes, at a device's clock.

waves = programs / (multiprocessors x programs beside each other)
seconds = (full waves x cycles + those of what is left) x turns of a program / clock
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from mnemic.kernels.limits import Target
from mnemic.kernels.stalls.units import clock


@dataclass(frozen=True)
class Shape:
    """A call: sequences, tokens, heads, channels of a key and of a value."""

    batch: int
    tokens: int
    heads: int
    width: int

    def __str__(self) -> str:
        return f"{self.batch} x {self.tokens} x {self.heads}, {self.width}"


SHAPES: Final = (
    Shape(8, 4096, 32, 128), Shape(1, 8192, 8, 128), Shape(1, 65536, 16, 128),
    Shape(32, 2048, 16, 64),
)  # fmt: skip
"""Many memories, few, few over a long text, many short ones of narrow heads."""


@dataclass(frozen=True)
class Part:
    """One kernel of a call: programs, waves of them, seconds."""

    name: str
    programs: int
    waves: float
    seconds: float


@dataclass(frozen=True)
class Call:
    """A pass of a spec at a shape; ``least`` where inner loops take turns that are not counted."""

    spec: str
    step: str
    shape: Shape
    kernels: tuple[Part, ...]
    least: bool
    bytes: float
    """Seconds in which the device's memory moves each argument, output and gradient once."""

    @property
    def seconds(self) -> float:
        """Seconds of all kernels, one after another."""
        return sum(part.seconds for part in self.kernels)


Row = Mapping[str, str]
"""A table's row by its headings."""


def calls(rows: Iterable[Row], target: Target) -> Iterator[Call]:
    """Yield the calls at the shapes that have the width of rows, pass by pass."""
    for (spec, width, step), found in groupby(rows, itemgetter("spec", "d", "pass")):
        kernels = list({(row["kernel"], row["sizes"]): row for row in found}.values())
        if not all(row["kernel"] for row in kernels):
            continue
        for shape in SHAPES:
            if str(shape.width) == width:
                parts = tuple(part(row, shape, target) for row in kernels)
                least = any(row["inner"] and not pairs(row) for row in kernels)
                yield Call(spec, step, shape, parts, least, moved(shape, step, target))


def moved(shape: Shape, step: str, target: Target) -> float:
    """Return the seconds of the bytes that no kernel is without: q, k, v and y in 16 bits, and for
    gradients q, k, v and dy once more, and dq, dk, dv."""
    vectors = 4 if step == "forward" else 11
    rows = shape.batch * shape.tokens * shape.heads
    return 2 * vectors * rows * shape.width / target.bandwidth


def part(row: Row, shape: Shape, target: Target) -> Part:
    """Estimate the programs, waves and seconds of one kernel at a shape."""
    work = work_of(row, shape)
    beside = max(1, int(row["blocks"]))
    programs = shape.batch * shape.heads * work.programs
    inner = float(row["inner"]) * max(0.0, work.blocks - 1) if row["inner"] else 0.0
    one, full = float(row["alone"]) + inner / beside, float(row["cycles"]) + inner
    waves, left = divmod(programs, target.processors * beside)
    cycles = waves * full + _cycles(-(-left // target.processors), beside, one, full)
    return Part(row["kernel"], programs * work.launches,
                programs * work.launches / (target.processors * beside),
                cycles * work.turns * work.launches / clock(target))  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A kernel's work at a shape, on average: launches, programs for each memory in a launch,
    iterations of a program, blocks of pairs in an iteration."""

    launches: int
    programs: int
    turns: float
    blocks: float


def work_of(row: Row, shape: Shape) -> Work:
    """Work out a kernel's work at a shape from the row of a short call.

    On average the pairs before a chunk are half of all tokens. A kernel with a program for each
    block of pairs (``…_pairs``, ``…_earlier`` of a gradient) loops over the chunks after its block;
    one that is launched for ``PART`` chunks at a time reads the pairs before these, or their own.
    """
    chunks, block, size = -(-shape.tokens // int(row["rows"])), pairs(row), _size(row, "PART")
    whole = row["of a"] == "program"
    blocks = shape.tokens / 2 / block if block else 0.0
    parts = -(-chunks // size) if size else 1
    match row["kernel"]:
        case "chunk_backward_pairs" | "chunk_back_pairs":
            return Work(1, -(-shape.tokens // block), chunks / 2, 0.0)
        case "chunk_back_earlier":
            return Work(parts, max(1, round(blocks)), min(size, chunks), 0.0)
        case "chunk_earlier":
            return Work(parts, min(size, chunks), blocks, 0.0)
        case "chunk_making" | "chunk_back_making":
            own = min(size, chunks) * int(row["rows"]) / 2 / block
            return Work(parts, 1, min(size, chunks), own)
    return Work(1, int(row["programs"]) * (chunks if whole else 1), 1 if whole else chunks, blocks)


def pairs(row: Row) -> int:
    """Return the pairs of a block, if the kernel loops over earlier pairs by blocks; else 0."""
    return _size(row, "BN")


def _size(row: Row, name: str) -> int:
    """Return a constant of a kernel; 0 where it has none of that name."""
    found = [x for x in row["sizes"].split() if x.startswith(f"{name}=")]
    return int(found[0].removeprefix(f"{name}=")) if found else 0


def _cycles(programs: int, beside: int, one: float, full: float) -> float:
    """Estimate cycles of fewer programs than a multiprocessor holds, between one's and all's."""
    if not programs:
        return 0.0
    return one if beside == 1 else one + (full - one) * (programs - 1) / (beside - 1)
