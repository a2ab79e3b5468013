"""What a device offers to the programs of a kernel."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from . import versions

SHARED = {"sm_80": 166_912, "sm_90": 232_448, "sm_100": 232_448, "sm_120": 101_376}
"""Bytes of shared memory for a program, of what kernels are compiled for where no device is."""


@dataclass(frozen=True)
class Limits:
    """Multiprocessors; of each its 32-bit registers and threads; bytes that a program may share.

    Without a device there is one of everything that sm_80 has: a lone multiprocessor is always
    busy, so nothing is split for the sake of others.
    """

    processors: int = 1
    registers: int = 65_536
    threads: int = 2_048
    shared: int = SHARED["sm_80"]


def limits(device: torch.device) -> Limits:
    """Return a device's limits as its driver tells them, or those of what is compiled for."""
    return _limits(device, versions.offline())


@cache
def _limits(device: torch.device, target: str) -> Limits:
    if device.type != "cuda":
        return Limits(shared=SHARED.get(target, Limits.shared))
    told: Any = torch.cuda.get_device_properties(device)
    most = getattr(told, "shared_memory_per_block_optin", told.shared_memory_per_block)
    registers = getattr(told, "regs_per_multiprocessor", Limits.registers)
    return Limits(
        told.multi_processor_count, registers, told.max_threads_per_multi_processor, most
    )  # fmt: skip
