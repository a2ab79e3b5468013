"""The work of one iteration of a kernel's loop, and an estimate of the cycles that it takes.

The figures were fitted to a simulation of machine code for sm_90 (its issue, latencies and units),
within a third of it for gated and plain delta rules at 64 and 128 channels. None was measured on a
device; they only have to tell which of two ways is the faster one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .sizes import volume

SEVERAL = 64
"""Rows from which on products are those of warp groups."""

PRODUCTS = {True: 1_024, False: 512}
"""Multiplications and additions a cycle of a program, with warp groups and without."""

PRODUCT = {True: 250, False: 500}
"""Cycles that a product takes beside its multiplications: its operands, barriers, its result."""

SOLVED = 100
"""Cycles for each row of a function that takes products one after another."""

SQUARE = 40
"""Cycles for each row of a function of rows against rows, or against channels."""

LOADED = 2_500
"""Cycles for which a turn waits for its loads, where none is begun in an earlier turn."""


@dataclass(frozen=True)
class Body:
    """Matrix products by the names of their sizes (rows, columns, and the summed axis), functions
    that take products one after another, and functions of rows against rows or channels."""

    products: tuple[tuple[tuple[str, str, str], int], ...]
    solves: int = 0
    squares: int = 0

    def cycles(self, length: Mapping[str, int], *, pipelined: bool) -> float:
        """Count the cycles of an iteration, given the lengths of the axes by name."""
        rows = length["C"]
        groups = rows >= SEVERAL
        found = float(self.solves * SOLVED * rows + self.squares * SQUARE * rows)
        for sizes, count in self.products:
            own = volume([length[size] for size in sizes]) / PRODUCTS[groups]
            found += count * (PRODUCT[groups] + own)
        return found + (0 if pipelined else LOADED)
