"""A compiled kernel → what it costs by the simulation, in a few numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mnemic.kernels.limits import Target
from mnemic.kernels.stalls.instructions import Instruction, decode
from mnemic.kernels.stalls.multiprocessor import END, Simulated, Step, simulate
from mnemic.kernels.stalls.path import Path, path
from mnemic.kernels.stalls.units import LATENCY, can_simulate

ROWS = 64
"""Rows of a memory for which cycles are compared."""

TOLD = 3
"""How many are told of the things that warps wait for most."""

TURNS = 100_000
"""Instructions, of all warps, up to which more turns are simulated."""

FEW, MANY = 1, 3
"""Turns of inner loops whose number is not known, to tell what one more takes."""


@dataclass(frozen=True)
class Cycles:
    """Cycles of a kernel on one multiprocessor, by the simulation.

    Args:
        whole: of a program from its start to its end; else of a turn of its loop over chunks.
        rows: of a memory that the turn or the program is for.
        programs: that have these rows, each with its own block of values.
        beside: programs that share a multiprocessor.
        instructions, barriers: that a warp goes through.
        alone, full: cycles of one program for itself, and of each of ``beside`` programs.
        more: cycles, in ``full``, of one more turn of the inner loops whose number of turns is not
            known, which are taken once; None where there are none.
        waits: what warps wait for, as shares of their time, the largest first.
    """

    whole: bool
    rows: int
    programs: int
    beside: int
    instructions: int
    barriers: int
    alone: float
    full: float
    more: float | None
    waits: Mapping[str, float]

    @property
    def of_rows(self) -> float:
        """Cycles of a multiprocessor for 64 rows of a memory, where it holds as many programs as
        it can."""
        return self.full / self.beside * self.programs * ROWS / self.rows


@dataclass(frozen=True)
class Machine:
    """A kernel as it was compiled: its disassembly with control words, its intermediate code."""

    disassembly: str
    ttgir: str
    warps: int
    beside: int
    target: Target


def estimated(
    machine: Machine, rows: int, grid: Sequence[int], latency: int = LATENCY
) -> Cycles:  # fmt: skip
    """Estimate the cycles of a kernel launched on a grid whose first axis are memories.

    Raises ``UsageError`` for a target whose units are not known.
    """
    can_simulate(machine.target.name)
    code = decode(machine.disassembly)
    taken, beside = path(code, machine.disassembly, machine.ttgir), max(1, machine.beside)
    steps = _steps(code, taken, machine.target, latency)
    full = _simulated(steps, machine.warps, beside)
    alone = full if beside == 1 else _simulated(steps, machine.warps, 1)
    more = _more(machine, code, full, latency) if taken.unknown else None
    return Cycles(
        whole=taken.whole, rows=rows, programs=1 if taken.shared else prod(grid[1:]),
        beside=beside, instructions=len(taken.places),
        barriers=sum(step.arrives is not None for step in steps), alone=alone.cycles,
        full=full.cycles, more=more, waits=_shares(full),
    )  # fmt: skip


def rows_of(name: str, constants: Mapping[str, Any]) -> int:
    """Return the rows of a turn: a chunk's, as the kernel's constants tell, or one token."""
    if name.startswith(("token", "step")):
        return 1
    return int(constants.get("ROWS") or constants.get("C") or 1)


def _steps(
    code: Sequence[Instruction], taken: Path, target: Target, latency: int
) -> list[Step]:  # fmt: skip
    known = [Step.of(one, target, latency) for one in code]
    return [known[place] for place in taken.places] + [END] * taken.whole


def _simulated(steps: Sequence[Step], warps: int, beside: int) -> Simulated:
    """Simulate two turns behind the first, of short ones four behind two."""
    short = len(steps) * warps * beside * 6 < TURNS
    return (
        simulate(steps, warps, beside, warm=2, turns=4) if short else simulate(steps, warps, beside)
    )


def _more(
    machine: Machine, code: Sequence[Instruction], full: Simulated, latency: int
) -> float:  # fmt: skip
    """Simulate what one more turn of inner loops takes, in cycles."""
    longer = path(code, machine.disassembly, machine.ttgir, MANY)
    steps = _steps(code, longer, machine.target, latency)
    found = _simulated(steps, machine.warps, max(1, machine.beside))
    return (found.cycles - full.cycles) / (MANY - FEW)


def _shares(found: Simulated) -> dict[str, float]:
    """Return the largest waits as shares of a turn."""
    largest = sorted(found.waits.items(), key=lambda one: -one[1])[:TOLD]
    return {name: round(cycles / found.cycles, 3) for name, cycles in largest}
