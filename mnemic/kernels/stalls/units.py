"""What an instruction takes of a multiprocessor: a unit, for so many cycles, and until it is done.

A multiprocessor has four schedulers, each with units of its own and a tensor core; shared memory,
loads, stores and shuffles are one unit of all four. Cycles that a unit is taken follow from its
lanes: a warp of 32 threads on n results a cycle and multiprocessor takes 128/n cycles of a
scheduler's quarter. The lanes are those of the CUDA C++ Programming Guide's table of arithmetic
throughput; products a cycle of the tensor cores those of the data sheets' peaks. When results are
there is told by the stall counts for what takes a fixed time; latencies below are of the others,
rounded from published microbenchmarks of A100 and H100, not measured here.
"""

import re
from dataclasses import dataclass
from enum import Enum

from mnemic.errors import UsageError
from mnemic.kernels.limits import Target
from mnemic.kernels.stalls.instructions import Instruction


class Unit(Enum):
    """What instructions queue for."""

    FLOAT = "float units"
    INTEGER = "integer units"
    DOUBLE = "double units"
    SLOW = "slow functions"
    TENSOR = "tensor cores"
    MEMORY = "load and store unit"
    NONE = "nothing"


@dataclass(frozen=True)
class Use:
    """What one instruction takes.

    Args:
        unit: what it queues for; busy: cycles that it takes that.
        latency: cycles from then on until the result is there.
        awaited: what a warp that waits for the result waits for.
        carried: bytes that come from the L2 cache, one instruction's behind the other's.
    """

    unit: Unit
    busy: int
    latency: int
    awaited: str
    carried: int = 0


DEVICE_MEMORY = "device memory"
SHARED_MEMORY = "shared memory"

LATENCY = 600
"""Cycles of a load from the device's memory, unless told; about 270 where the L2 cache has it."""

LOCAL = 40
"""Cycles of a load from the stack, which the L1 cache has."""

SHARED = 30
"""Cycles of a load from shared memory; of a shuffle it is a few less."""

READ = 20
"""Cycles until a store, or a load, has read its registers."""

BARRIER = 24
"""Cycles from the last warp's arrival at a barrier until the others go on."""

FENCE = 20
SPECIAL = 22
"""Cycles of a slow function, a special register, a constant by a place that is computed."""

ACCUMULATED = 18
"""Cycles from the end of a product of warp groups until its result can be read."""

BYTES = 128
"""Bytes of shared memory a cycle."""

CARRIED = 64
"""Bytes a cycle from the L2 cache to one multiprocessor."""

FLOATS = {"FADD", "FMUL", "FFMA", "FMNMX", "FSEL", "FSETP", "FCHK", "HFMA2", "HADD2", "HMUL2"}
ON_INTEGERS = {"FMNMX", "FSEL", "FSETP"}
"""Comparisons of floats, and what chooses by them, are done by the integer units."""
DOUBLES = {"DADD", "DMUL", "DFMA", "DSETP"}
SLOWLY = {"MUFU", "I2F", "F2I", "F2F", "POPC", "FLO", "BREV"}
SPECIALS = {"S2R", "S2UR", "CS2R", "LDC", "R2UR", "B2R"}
FENCES = {"MEMBAR", "FENCE", "ERRBAR", "CCTL"}
FLOW = {"BRA", "BSSY", "BSYNC", "BREAK", "BAR", "EXIT", "NOP", "WARPSYNC", "DEPBAR", "LDGDEPBAR",
        "WARPGROUP", "CALL", "RET", "YIELD", "BMOV"}  # fmt: skip
ENGINES = {"UTMALDG", "UTMASTG", "UBLKCP", "SYNCS"}
"""Copies of whole tiles, and the barriers that they count at; Triton makes them of descriptors."""
GLOBAL = {"LDG", "LD", "LDGSTS"}
STORED = {"STG", "ST", "RED", "ATOM", "ATOMG"}
ON_CHIP = {"LDS", "STS", "LDSM", "STSM", "SHFL", "ATOMS"}
ON_STACK = {"LDL", "STL"}

SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)")
PRODUCTS = {"1688": 16 * 8 * 8, "16816": 16 * 8 * 16, "16832": 16 * 8 * 32, "884": 8 * 8 * 4}
"""Multiplications and additions of an instruction of one warp."""

PER_CYCLE = {"sm_80": 256, "sm_90": 512}
"""Products of bfloat16 numbers, summed, a cycle and tensor core (``dense`` of ``limits`` is these
on all cores at the device's clock). Machine code of other targets is not known here."""

FRACTION = {"HMMA": 0.6}
"""The share of the peak that products of single warps reach on Hopper (published: 0.62)."""


def can_simulate(target: str) -> None:
    """Raise ``UsageError`` for a target whose units are not known here."""
    if target not in PER_CYCLE:
        raise UsageError(f"stalls: read target '{target}', allowed: {', '.join(PER_CYCLE)}")


CORES = 4
"""Tensor cores, and schedulers, of a multiprocessor."""


def clock(target: Target) -> float:
    """Return the cycles a second at which the target's peak of products holds."""
    return target.dense / (2 * PER_CYCLE[target.name] * CORES * target.processors)


def use(one: Instruction, target: Target, latency: int = LATENCY) -> Use:
    """Return what an instruction takes on a target; loads from device memory take ``latency``.

    Raises ``UsageError`` for copies by an engine of their own.
    """
    kind = one.kind
    if kind in ENGINES:
        raise UsageError(f"stalls: read {one.name}, whose engine beside the warps is not simulated")
    if kind in GLOBAL | STORED | ON_CHIP | ON_STACK:
        return _memory(one, latency)
    if kind in ("HMMA", "IMMA", "DMMA"):
        return Use(Unit.TENSOR, _warp_product(one, target), 33, "products")
    if kind == "HGMMA":
        return Use(Unit.TENSOR, _group_product(one, target), ACCUMULATED, "products")
    if kind in SLOWLY:
        return Use(Unit.SLOW, 8, SPECIAL, "slow functions")
    if kind in SPECIALS or kind in FENCES:
        found = FENCE if kind in FENCES else SPECIAL
        return Use(Unit.NONE, 1, found, "fences" if kind in FENCES else "constants")
    if kind in FLOW:
        return Use(Unit.NONE, 1, 1, "branches")
    if kind in DOUBLES:
        return Use(Unit.DOUBLE, 4 if target.arch == 80 else 2, 16, "double units")
    if kind in FLOATS - ON_INTEGERS:
        return Use(Unit.FLOAT, 2 if target.arch == 80 else 1, 4, "float units")
    if kind.startswith("U"):  # one number for the whole warp
        return Use(Unit.NONE, 1, 12, "constants")
    unit = Unit.FLOAT if kind == "IMAD" else Unit.INTEGER
    return Use(unit, 2, 5, unit.value)


def width(one: Instruction) -> int:
    """Return how many bytes a thread an instruction moves."""
    if one.kind in ("LDSM", "STSM"):  # four threads hold a row of 16 bytes of an 8 by 8 matrix
        return 4 * int(one.modifiers[-1]) if one.modifiers[-1].isdigit() else 4
    bits = [x for x in one.modifiers if x in ("32", "64", "128")]
    return int(bits[0]) // 8 if bits else 4


def _memory(one: Instruction, latency: int) -> Use:
    """Return what loads and stores take, 128 bytes a cycle; loads from afar arrive more slowly."""
    moved = 32 * width(one)
    busy = max(1, moved // BYTES)
    if one.kind in ON_CHIP:
        later = SHARED - 6 if one.kind == "SHFL" else SHARED
        return Use(Unit.MEMORY, busy, later, SHARED_MEMORY)
    if one.kind in ON_STACK:
        return Use(Unit.MEMORY, busy, LOCAL, "stack")
    carried = moved if one.kind in GLOBAL else 0
    return Use(Unit.MEMORY, busy, latency, DEVICE_MEMORY, carried)


def _narrow(one: Instruction) -> int:
    """Return how many times a product of 16-bit numbers an instruction's take."""
    return 2 if "TF32" in one.modifiers else 4 if one.kind == "DMMA" else 1


def _warp_product(one: Instruction, target: Target) -> int:
    """Return the cycles of the tensor core for a product of one warp."""
    found = next((PRODUCTS[x] for x in one.modifiers if x in PRODUCTS), PRODUCTS["16816"])
    part = FRACTION["HMMA"] if target.arch >= 90 else 1.0
    return max(1, round(found * _narrow(one) / (PER_CYCLE[target.name] * part)))


def _group_product(one: Instruction, target: Target) -> int:
    """Count the cycles that each of four tensor cores works at its 16 rows of a group's product.

    ``HGMMA.64xNxK``. What is read of shared memory may take longer: K columns of 64 rows, unless
    registers hold them, and N rows, at 128 bytes a cycle; that is so below N = 64.
    """
    found = SHAPE.search(one.name)
    rows, columns, depth = map(int, found.groups()) if found else (64, 64, 16)
    size = 4 if "TF32" in one.modifiers else 2
    from_registers = len(one.operands) > 1 and one.operands[1].startswith("R")
    read = size * depth * (columns + (0 if from_registers else rows)) / BYTES
    work = rows // 4 * columns * depth * _narrow(one) / PER_CYCLE[target.name]
    return max(1, round(max(work, read)))
