"""Kernels compiled without a device: inside ``compiling`` a launch is a compilation.

    with compiling(target("sm_90")) as log:
        rule(q, k, v, form="triton", **coefficients)      # tensors on the CPU
    for kernel in log.kernels: ...

Outputs are whatever memory they were given; a backward pass started inside is compiled too. A
process that imported Triton with ``TRITON_INTERPRET=1`` holds interpreted functions, which have
nothing to compile: it is refused.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mnemic.codegen.support.patterns import turned_accumulators
from mnemic.codegen.support.versions import OFFLINE, interpreting
from mnemic.errors import UsageError
from mnemic.kernels.binary import Resources, encoded, resources
from mnemic.kernels.limits import Target
from mnemic.kernels.stalls.cycles import Cycles, Machine, estimated, rows_of


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its name, constants and options, what it takes, seconds to compile.

    ``transposed`` counts products that some versions of Triton get wrong on Hopper, which launches
    there keep clear of (``starting``). ``cycles`` are a simulation's, where it was asked for.
    """

    name: str
    constants: Mapping[str, Any]
    num_warps: int
    num_stages: int
    target: Target
    resources: Resources
    seconds: float
    transposed: int = 0
    cycles: Cycles | None = None

    @property
    def troubles(self) -> tuple[str, ...]:
        """Why it does not run, or runs badly, on its target."""
        found, limits = self.resources, self.target
        told = []
        if found.shared > limits.shared:
            told.append(f"shared memory {found.shared} of {limits.shared} bytes")
        if found.spill:
            told.append(f"spills {found.spill} bytes")
        if found.registers * self.num_warps * 32 > limits.file:
            told.append(f"registers {found.registers * self.num_warps * 32} of {limits.file}")
        return tuple(told)

    @property
    def blocks(self) -> int:
        """Blocks that a multiprocessor can hold at once, by registers, shared memory and warps."""
        found, limits = self.resources, self.target
        threads = -(-found.registers // 8) * 8 * 32 * self.num_warps
        by_memory = limits.shared_all // (found.shared + 1024)
        return min(limits.file // max(1, threads), by_memory, limits.warps // self.num_warps)


@dataclass(frozen=True)
class Argument:
    """A tensor that a kernel was given: where it lies, and its bytes."""

    name: str
    address: int
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Launch:
    """One launch: the kernel's name, the grid, the tensors, which compiled kernel it was."""

    kernel: str
    grid: tuple[int, ...]
    tensors: tuple[Argument, ...]
    key: str = ""


@dataclass
class Log:
    """What was launched, and each distinct kernel of it once."""

    target: Target
    launches: list[Launch] = field(default_factory=list)
    known: dict[str, Kernel] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds to compile each kernel, also those that were not launched."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in the order of their first launch."""
        return tuple(self.known.values())

    def since(self, launch: int) -> tuple[Kernel, ...]:
        """Return the distinct kernels launched from the ``launch``-th on, in their order."""
        keys = dict.fromkeys(x.key for x in self.launches[launch:])
        return tuple(self.known[key] for key in keys)


class Driver:
    """What Triton asks of a device, answered for a target; nothing can be launched with it."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        """Return the target to compile for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.target.arch, 32)

    def get_current_device(self) -> int:
        """Return a number for each target, since Triton keeps compiled kernels by device."""
        return self.target.arch

    def get_current_stream(self, device: int) -> int:
        """Return some stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Return where the tensors are, which is the CPU."""
        return torch.device("cpu")


@contextmanager
def compiling(target: Target, *, stalls: bool = False) -> Iterator[Log]:
    """Compile every kernel launched inside for ``target`` instead of running it.

    With ``stalls`` its machine code is simulated. Raises ``UsageError`` where Triton interprets.
    """
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    if interpreting():
        raise UsageError("kernels: Triton interprets here (TRITON_INTERPRET); compile elsewhere")
    log, plain = Log(target), JITFunction.run
    before = getattr(driver, "_active", None)

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        began = time.perf_counter()
        compiled = plain(self, *args, grid=grid, warmup=True, **options)
        seconds = log.seconds.setdefault(compiled.hash, time.perf_counter() - began)
        if warmup:  # it is only looked at
            return compiled
        given = _given(self, args, options)
        shape = grid(given) if callable(grid) else grid
        grid = tuple(map(int, shape))
        log.launches.append(Launch(self.fn.__name__, grid, _tensors(given), compiled.hash))
        if compiled.hash not in log.known:
            kernel = _kernel(self, compiled, target, seconds)
            log.known[compiled.hash] = _simulated(kernel, compiled, grid) if stalls else kernel
        return compiled

    driver.set_active(Driver(target))
    JITFunction.run = run
    os.environ[OFFLINE] = target.name
    try:
        yield log
    finally:
        del os.environ[OFFLINE]
        JITFunction.run = plain
        driver._active = before


def _given(function: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a launch's arguments by name."""
    named = {n: x for n, x in options.items() if n in function.signature.parameters}
    bound = function.signature.bind(*args, **named)
    bound.apply_defaults()
    return dict(bound.arguments)


def _tensors(given: Mapping[str, Any]) -> tuple[Argument, ...]:
    return tuple(
        Argument(name, x.data_ptr(), tuple(x.shape), x.numel() * x.element_size())
        for name, x in given.items()
        if isinstance(x, torch.Tensor)
    )


def _kernel(function: Any, compiled: Any, target: Target, seconds: float) -> Kernel:
    names = function.arg_names
    folded = compiled.src.constants.items()
    constants = {names[at if isinstance(at, int) else at[0]]: _plain(x) for at, x in folded}
    metadata = compiled.metadata
    return Kernel(
        function.fn.__name__, constants, int(metadata.num_warps), int(metadata.num_stages),
        target, resources(compiled), seconds, turned_accumulators(compiled.asm["ttgir"]),
    )  # fmt: skip


def _simulated(kernel: Kernel, compiled: Any, grid: tuple[int, ...]) -> Kernel:
    """Return the kernel with its cycles by the simulation."""
    machine = Machine(encoded(compiled), compiled.asm["ttgir"], kernel.num_warps, kernel.blocks,
                      kernel.target)  # fmt: skip
    cycles = estimated(machine, rows_of(kernel.name, kernel.constants), grid)
    return replace(kernel, cycles=cycles)


def _plain(value: Any) -> Any:
    """Return a constant as JSON holds it."""
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
