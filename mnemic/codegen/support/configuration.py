"""How a fused kernel's work is cut, chosen before it is ever run: rows a chunk, channels a block.

The model counts the entries of tiles that are alive at once: memories (and their gradients), the
arguments' rows with what is made of them, and a few matrices of rows against rows. A program of 8
warps has 256 threads with 255 registers each, of which addresses and masks take a good part.
"""

from dataclasses import dataclass
from math import prod
from typing import Protocol

CUTS = ((64, 64), (32, 64), (64, 32), (32, 32), (16, 64), (16, 32), (16, 16))
"""Rows a chunk and channels a block of values, the best first."""

BUDGET = 130
"""Entries a thread: offline compilation for sm_90 shows no spilled registers up to about here."""


class Sized(Protocol):
    """Something with named sizes."""

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of its sizes."""


class Cuttable(Protocol):
    """What the model needs to know of a kernel."""

    @property
    def rows(self) -> tuple[Sized, ...]:
        """Its arguments by row."""

    @property
    def states(self) -> tuple[Sized, ...]:
        """Its memories."""

    @property
    def split(self) -> str:
        """The size that may be cut."""

    @property
    def chunked(self) -> bool:
        """Whether it takes chunks, not tokens."""


@dataclass(frozen=True)
class Configuration:
    """Rows a chunk, channels a block of values, warps and stages of a program."""

    rows: int
    block: int
    warps: int
    stages: int = 1


def configured(
    kernel: Cuttable, sizes: dict[str, int], *, gradient: bool, most: int = 64
) -> Configuration:
    """The best cut whose tiles fit into registers, or the smallest there is.

    ``sizes`` are the axes' by name; ``most`` is how many rows a chunk may have.
    """
    warps = 8 if kernel.chunked else 4
    cuts = [cut for cut in CUTS if cut[0] <= max(most, CUTS[-1][0])]
    for rows, block in cuts:
        if alive(kernel, sizes, rows, block, gradient=gradient) <= BUDGET * 32 * warps:
            return Configuration(min(rows, most), block, warps)
    return Configuration(min(cuts[-1][0], most), cuts[-1][1], warps)


def alive(kernel: Cuttable, sizes: dict[str, int], rows: int, block: int, *, gradient: bool) -> int:
    """Entries of tiles that are alive at once."""
    cut = {name: min(n, block) if name == kernel.split else n for name, n in sizes.items()}
    times = 2 if gradient else 1
    memories = times * sum(prod(cut[name] for name in state.sizes) for state in kernel.states)
    if not kernel.chunked:
        return memories
    vectors = [cut[row.sizes[0]] for row in kernel.rows if len(row.sizes) == 1]
    made = 2 * sum(vectors) // max(1, len(vectors)) + sum(vectors)
    return memories + times * rows * made + 4 * rows * rows
