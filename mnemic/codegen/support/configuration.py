"""The *cut* of a fused kernel's work, its tiling, chosen before the kernel has ever run.

A cut is the rows of a chunk, the channels of a block of values, warps and stages. The model keeps
the cuts whose tiles fit on chip at the fullest moment of a chunk; of these it takes the one with
the fewest cycles by count: waves of programs over the device's multiprocessors, each with its
chunks one after another, each chunk with a fixed delay, its products and bytes. So a few memories
are cut into many blocks of values, and many memories into few.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Protocol

from . import versions
from .limits import Limits
from .sizes import power_of_two, volume

Tiles = tuple[tuple[tuple[str, ...], int], ...]
"""Shapes by the names of their sizes (``a|b``: the lesser), and how many tiles of each."""

ROWS = (64, 32, 16)
BLOCKS = (64, 32, 16)
WARPS = (2, 4, 8, 16)
STAGES = (1, 2, 3)

LEANEST = 2
"""How lean a gradient is at most."""

REGISTERS, FILE = 255, 65_536
"""Registers of a thread, and of a multiprocessor."""

SPARING = "--register-usage-level 0"
"""An option of NVIDIA's assembler: from 0, no optimisation that costs registers, to 10; 5 if it is
told nothing."""

TOKENS = 180
BUDGET = {False: 110, True: 150}
"""Entries a thread, token by token, and in chunks of a form and of its gradient: compiled offline
for sm_90, kernels spill no registers up to about here, since addresses, masks and operands on
their way take as many again."""

DELAY = 2_000
"""Cycles that a chunk (a token: a tenth) takes at least: loads, barriers, one product after
another. By count, not by measurement."""

PRODUCTS = 512
"""Multiplications and additions a cycle and multiprocessor, a quarter of its peak in 16 bits."""

BYTES = 15
"""Bytes a cycle and multiprocessor, from the device's memory."""

TALL = 64
"""Rows and columns of a product below which tensor cores are not filled."""


class Sized(Protocol):
    """Something with named sizes."""

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of its sizes."""


class Cuttable(Protocol):
    """What the model needs to know of a kernel to choose its cut."""

    @property
    def rows(self) -> tuple[Sized, ...]:
        """Its arguments by row."""

    @property
    def states(self) -> tuple[Sized, ...]:
        """Its memories."""

    @property
    def split(self) -> str:
        """The size whose axis may be cut into blocks, one for each program."""

    @property
    def blocked(self) -> tuple[str, ...]:
        """The sizes of the axes of which a tile holds one block only."""

    @property
    def along(self) -> tuple[str, ...]:
        """The blocked sizes whose blocks one program takes one after another, in a loop."""

    @property
    def chunked(self) -> bool:
        """Whether it takes chunks of rows, rather than single tokens."""

    @property
    def lanes(self) -> bool:
        """Whether its memories are single numbers."""

    @property
    def alive(self) -> tuple[tuple[Tiles, ...], ...]:
        """The moments of a chunk with most live entries, in the form and in its gradient."""

    def fits(self, rows: int) -> int:
        """Return the rows of a chunk that reads, with its windows, at most ``rows`` rows."""

    def sources(self, rows: int) -> int:
        """Return the rows of a tile for all that the windows of a chunk's rows read."""


@dataclass(frozen=True)
class Configuration:
    """A cut: the rows of a chunk, the channels (or pairs) of a block, a program's warps and stages.

    A ``lean`` gradient (1) reloads memories in each stage that reads them, and keeps the gradients
    of memories in device memory, which no stage may load before they are stored. The leanest (2)
    stores the results of products that are read later, and reloads all else for each product. In a
    kernel that loops over blocks of its memories it reloads rows of channels for each block. A
    ``swept`` cut is for the kernel that loops over blocks of its memories. For a ``full`` cut the
    assembler may use all registers, where it would rather spill some than have only one program on
    a multiprocessor; for a ``sparing`` one it omits optimisations that cost registers. A cut with
    ``parallel`` warps is for the several kernels that the form is divided into: those that run
    chunks in parallel have that many warps, twice as many where ``doubled`` names them; the block,
    warps and stages are those of the scan.
    """

    rows: int
    block: int
    warps: int
    stages: int = 1
    lean: int = 0
    swept: bool = False
    full: bool = False
    sparing: bool = False
    parallel: int = 0
    doubled: tuple[str, ...] = ()

    @classmethod
    def checked(
        cls, rows: int, block: int, warps: int, stages: int, lean: int = 0,
        swept: bool = False, full: bool = False, sparing: bool = False, parallel: int = 0,
        doubled: Sequence[str] = (),
    ) -> "Configuration":  # fmt: skip
        """Return a cut whose numbers come from outside, such as a file.

        Raises ``ValueError`` for numbers that no kernel takes.
        """
        found = cls(rows, block, warps, stages, int(lean), bool(swept), bool(full),
                    bool(sparing), int(parallel), tuple(map(str, doubled)))  # fmt: skip
        numbers = (rows, block, warps, stages)
        if not all(isinstance(n, int) and n > 0 for n in numbers):
            raise ValueError(f"{found}: whole numbers above 0 are needed")
        if block & (block - 1) or warps & (warps - 1) or max(warps, stages) > 32 or rows > 1024:
            raise ValueError(f"{found}: no kernel is cut so")
        if found.parallel not in (0, *WARPS):
            raise ValueError(f"{found}: parallel is 0 or one of {', '.join(map(str, WARPS))} warps")
        if not 0 <= found.lean <= LEANEST:
            raise ValueError(f"{found}: lean is 0, 1 or {LEANEST}")
        if lean and stages > 1:
            raise ValueError(f"{found}: a lean cut has one stage")
        return found

    def parallel_warps(self, name: str) -> int:
        """Count the warps of the kernel with that name, which runs all chunks in parallel."""
        return self.parallel * (2 if name in self.doubled else 1)

    @property
    def options(self) -> dict[str, Any]:
        """The launch options of a program under the names that Triton gives them."""
        found: dict[str, Any] = {"num_warps": self.warps, "num_stages": self.stages}
        found |= {"maxnreg": min(REGISTERS, FILE // (32 * self.warps))} if self.full else {}
        return found | ({"ptx_options": versions.to_assembler(SPARING)} if self.sparing else {})


@dataclass(frozen=True)
class Work:
    """What a kernel runs over: memories, rows of each, bytes of an entry."""

    memories: int = 1
    length: int = 4096
    bytes: int = 2


@dataclass(frozen=True)
class Choices:
    """The values that may be chosen, each in rising order; one entry where there is no choice."""

    rows: tuple[int, ...]
    blocks: tuple[int, ...]
    warps: tuple[int, ...]
    stages: tuple[int, ...]
    parallel: tuple[int, ...] = (0,)
    """Warps of what no state reaches, where that can be a kernel of its own; 0: it is none."""

    def around(self, found: Configuration) -> Iterator[Configuration]:
        """Yield the cuts that are one step away, in one direction each."""
        yield from (replace(found, block=n) for n in _beside(found.block, self.blocks))
        yield from (replace(found, warps=n) for n in _beside(found.warps, self.warps))
        yield from (replace(found, rows=n) for n in _beside(found.rows, self.rows))
        if not found.lean:
            yield from (replace(found, stages=n) for n in _beside(found.stages, self.stages))
            alike = replace(found, doubled=())  # warps that are tried are those of every kernel
            yield from (replace(alike, parallel=n) for n in _beside(found.parallel, self.parallel))
        if found.full:
            yield replace(found, full=False)
        if found.sparing:
            yield replace(found, sparing=False)


def _beside(now: int, allowed: tuple[int, ...]) -> tuple[int, ...]:
    """Return the next smaller and the next larger allowed number, where they exist."""
    return (*[n for n in allowed if n < now][-1:], *[n for n in allowed if n > now][:1])


def choices(kernel: Cuttable, sizes: dict[str, int], most: int) -> Choices:
    """Return what the tuner may try of a kernel."""
    if kernel.lanes:
        return Choices((1,), (BLOCKS[0],), WARPS[:3], (1,))
    blocks: tuple[int, ...] = BLOCKS[:1]
    if kernel.blocked:
        blocks = tuple(n for n in (16, 32, 64, 128, 256) if n <= _widest(kernel, sizes))
    rows = tuple(n for n in sorted(ROWS) if n <= most) if kernel.chunked else (ROWS[0],)
    return Choices(rows, blocks, WARPS, STAGES if kernel.chunked else (1,))


def _widest(kernel: Cuttable, sizes: dict[str, int]) -> int:
    """Return the block that holds all channels."""
    return max(BLOCKS[-1], *(power_of_two(sizes[name]) for name in kernel.blocked))


def configured(
    kernel: Cuttable, sizes: dict[str, int], device: Limits, work: Work, *, gradient: bool,
    most: int = 64,
) -> Configuration:  # fmt: skip
    """Choose the cut with the fewest cycles of those that fit on chip, else the nearest to fitting.

    ``sizes`` are the axes' by name; ``most`` is how many rows a chunk may have.
    """
    cuts = _cuts(kernel, sizes, most, gradient=gradient)
    most_held = budget(kernel, gradient=gradient)
    fitting = [cut for cut in cuts if entries(kernel, sizes, cut, gradient=gradient) <= most_held]
    fewest = min(entries(kernel, sizes, cut, gradient=gradient) for cut in cuts)
    fitting = fitting or [
        cut for cut in cuts if entries(kernel, sizes, cut, gradient=gradient) == fewest
    ]
    return min(
        fitting, key=lambda cut: cycles(kernel, sizes, cut, device, work, gradient=gradient)
    )  # fmt: skip


def budget(kernel: Cuttable, *, gradient: bool) -> int:
    """Return how many entries each thread may hold before registers spill more than a little."""
    return BUDGET[gradient] if kernel.chunked else TOKENS


def _cuts(
    kernel: Cuttable, sizes: dict[str, int], most: int, *, gradient: bool
) -> list[Configuration]:
    """Return the cuts that the model compares; for a gradient over chunks only the widest block."""
    tall = [n for n in ROWS if n <= max(most, ROWS[-1])] if kernel.chunked else [ROWS[0]]
    wide = [n for n in BLOCKS if n <= _widest(kernel, sizes)] if kernel.blocked else BLOCKS[:1]
    wide = wide[:1] if kernel.chunked and gradient and kernel.split else wide
    several = (8,) if kernel.chunked else (4, 8)
    return [
        Configuration(min(rows, most), block, warps)
        for rows, block, warps in product(tall, wide, several)
    ]


def lengths(kernel: Cuttable, sizes: dict[str, int], cut: Configuration) -> dict[str, int]:
    """Return the lengths of a tile's axes by name."""
    found = {name: max(16, power_of_two(n)) for name, n in sizes.items()}
    for name in kernel.blocked:
        found[name] = min(found[name], cut.block)
    rows = kernel.fits(cut.rows)
    tall = max(16, power_of_two(rows)) if kernel.chunked else 1
    return found | {"C": tall, "SOURCES": kernel.sources(rows) if kernel.chunked else 1}


def entries(
    kernel: Cuttable, sizes: dict[str, int], cut: Configuration, *, gradient: bool
) -> int:  # fmt: skip
    """Count the tile entries that are alive at once, for each thread.

    A chunk's products spread their operands over warps as if blocks of values were no narrower than
    64, so that narrower blocks free no registers (the spills of offline compilation show it).
    """
    if not kernel.alive:
        return 0
    if kernel.chunked and not kernel.along:
        cut = replace(cut, block=max(cut.block, BLOCKS[0]))
    length = lengths(kernel, sizes, cut)
    moments = kernel.alive[-1 if gradient else 0]
    most = 0
    for tiles in moments:
        alive = [n * volume([_lesser(length, s) for s in shape]) for shape, n in tiles]
        most = max(most, sum(alive))
    return most // (32 * cut.warps)


def _lesser(length: dict[str, int], names: str) -> int:
    """Return the length of an axis, or of the shorter of several (``a|b``)."""
    return min(length[name] for name in names.split("|"))


def least_entries(kernel: Cuttable, sizes: dict[str, int], *, gradient: bool) -> int:
    """Count a thread's live entries at the smallest cut; 0 where not all sizes are known."""
    shapes = [shape for moments in kernel.alive for tiles in moments for shape, _ in tiles]
    named = {name for shape in shapes for names in shape for name in names.split("|")}
    if not named - {"C", "SOURCES"} <= sizes.keys():
        return 0
    least = Configuration(ROWS[-1], BLOCKS[-1], 8)
    return entries(kernel, sizes, least, gradient=gradient)


def cycles(
    kernel: Cuttable, sizes: dict[str, int], cut: Configuration, device: Limits, work: Work, *,
    gradient: bool,
) -> float:  # fmt: skip
    """Count the device's cycles: waves of programs, each with its chunks one after another."""
    length = lengths(kernel, sizes, cut)
    blocks = -(-sizes[kernel.split] // length[kernel.split]) if kernel.split else 1
    threads = 32 * cut.warps
    beside = max(1, min(device.threads, device.registers // 256) // threads)
    waves = -(-work.memories * blocks // (device.processors * beside))
    steps = -(-work.length // kernel.fits(cut.rows)) if kernel.chunked else work.length
    for name in kernel.along:
        length[name] = power_of_two(sizes[name])  # one program takes all blocks
    own = _products(kernel, length, gradient) / PRODUCTS
    own += _bytes(kernel, length, work, gradient) / BYTES
    delay = DELAY if kernel.chunked else DELAY / 10
    return waves * steps * max(delay + own, beside * own)


def _products(kernel: Cuttable, length: dict[str, int], gradient: bool) -> int:
    """Count a chunk's multiplications: rows by rows and channels, and rows by each memory."""
    tall = max(length["C"], TALL) if kernel.chunked else 1
    channels = {s for row in kernel.rows for s in row.sizes if s not in ("C", "SOURCES")}
    found = sum(length["SOURCES"] * tall * length[size] for size in channels)
    found += 2 * sum(tall * volume([length[s] for s in state.sizes]) for state in kernel.states)
    return found * (3 if gradient else 1)


def _bytes(kernel: Cuttable, length: dict[str, int], work: Work, gradient: bool) -> int:
    """Count a chunk's bytes: of its arguments, for a gradient theirs in 32 bits too, a part each
    block; and 4 an entry of memories looped over by blocks, since the cache is three times
    faster."""
    entries = sum(length["C"] * volume([length[s] for s in row.sizes]) for row in kernel.rows)
    found = entries * (2 * work.bytes + 4 if gradient else work.bytes)
    if kernel.along:
        found += 4 * sum(volume([length[s] for s in state.sizes]) for state in kernel.states)
    return found
