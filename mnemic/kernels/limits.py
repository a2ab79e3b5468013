"""What a device offers a kernel: memories, registers, and the peaks that times are held against."""

from dataclasses import dataclass
from typing import Final

from mnemic.codegen.support.limits import SHARED
from mnemic.errors import UsageError


@dataclass(frozen=True)
class Target:
    """A device that kernels are compiled for.

    Args:
        name: as the compiler calls it, ``sm_90``.
        arch: compute capability as a number, 90.
        registers: the most that a thread can have; file: 32-bit registers a multiprocessor.
        shared: bytes of shared memory that one block can have; shared_all: a multiprocessor.
        warps: resident on a multiprocessor.
        processors: multiprocessors of the device that the peaks belong to.
        dense: bf16 operations a second with tensor cores, without sparsity; tf32 likewise.
        plain: float32 operations a second without tensor cores.
        bandwidth: bytes a second of device memory.
        device: the device that the peaks belong to; source: where they are from.
    """

    name: str
    arch: int
    registers: int
    file: int
    shared: int
    shared_all: int
    warps: int
    processors: int
    dense: float
    tf32: float
    plain: float
    bandwidth: float
    device: str
    source: str

    @property
    def ridge(self) -> float:
        """Operations a byte above which bf16 products, not bytes, decide the time."""
        return self.dense / self.bandwidth


GUIDE = "CUDA C++ Programming Guide, table of technical specifications; "

TARGETS: Final = {
    t.name: t
    for t in (
        Target(
            "sm_80", 80, 255, 65536, SHARED["sm_80"], 167_936, 64, 108, 312e12, 156e12, 19.5e12,
            2.039e12, "A100 80 GB SXM", GUIDE + "NVIDIA A100 data sheet",
        ),
        Target(
            "sm_90", 90, 255, 65536, SHARED["sm_90"], 233_472, 64, 132, 989e12, 494e12, 67e12,
            3.35e12, "H100 SXM", GUIDE + "NVIDIA H100 data sheet (figures without sparsity)",
        ),
        Target(
            "sm_100", 100, 255, 65536, SHARED["sm_100"], 233_472, 64, 148, 2250e12, 1125e12, 75e12,
            8.0e12, "B200", GUIDE + "NVIDIA HGX B200 data sheet (figures without sparsity)",
        ),
        Target(
            "sm_120", 120, 255, 65536, SHARED["sm_120"], 102_400, 48, 170, 209e12, 105e12, 105e12,
            1.79e12, "RTX 5090", GUIDE + "NVIDIA RTX Blackwell architecture paper",
        ),
    )
}  # fmt: skip
"""Targets by name. ``shared`` is what a block can ask for, 1 KiB less than a multiprocessor has."""


def target(name: str) -> Target:
    """Return the target of a name.

    Raises ``UsageError`` for one that is not known.
    """
    if name not in TARGETS:
        raise UsageError(f"target: read '{name}', allowed: {', '.join(TARGETS)}")
    return TARGETS[name]
