"""Versions of Triton that fused kernels must not run with, and what else keeps them from running.

``unusable(device)`` says in words why the fused form does not run there, or ``None``.
"""

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., object])

Version = tuple[int, int, int]

OLDEST: Version = (3, 6, 0)
"""The oldest Triton that compiles the generated kernels: 3.4 lacks ``tl.range(disable_licm=)``, 3.5
fails on other constructs."""


LAST = 1_000_000
"""Stands for the last patch of a release, whatever its number."""


@dataclass(frozen=True)
class Fault:
    """Wrong results that are known of Triton, from ``first`` to ``last`` on some devices.

    ``avoided`` is true where launches see to it that no kernel meets the fault (``starting``); then
    it keeps nobody from running them.
    """

    pattern: str
    first: Version
    last: Version
    capabilities: tuple[tuple[int, int], ...]
    source: str
    avoided: bool

    def holds(self, triton: Version, capability: tuple[int, int]) -> bool:
        """Return whether a version of Triton has the fault on a device of this capability."""
        return self.first <= triton <= self.last and capability in self.capabilities


FAULTS = (
    Fault(
        "a product of warp groups whose left side is a transposed accumulator is wrong",
        (3, 4, 0), (3, 7, 1), ((9, 0),),
        "flash-linear-attention issues 640 and 984", avoided=True,
    ),
    Fault(
        "products in a loop that carries their result race with 4 to 8 warps",
        (3, 4, 0), (3, 7, LAST), ((10, 0), (10, 3)),
        "Triton issues 9871 and 10590", avoided=False,
    ),
)  # fmt: skip


def parsed(text: str) -> Version:
    """Parse the three numbers of a version.

    >>> parsed("3.7.0+git1234")
    (3, 7, 0)
    """
    numbers = [int(n) for n in re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:3]]
    first, second, third = [*numbers, 0, 0, 0][:3]
    return first, second, third


def faults(triton: str, capability: tuple[int, int]) -> tuple[Fault, ...]:
    """Return the faults that are known of a version of Triton on a device."""
    return tuple(fault for fault in FAULTS if fault.holds(parsed(triton), capability))


@cache
def faulty(device: torch.device) -> bool:
    """Return whether this Triton is known to compile some products wrongly on a device."""
    triton = installed()
    if device.type != "cuda" or triton is None or elsewhere():
        return False
    return bool(faults(triton, torch.cuda.get_device_capability(device)))


def distrusted(triton: str, capability: tuple[int, int]) -> str | None:
    """Return why generated kernels must not run with this version, or ``None``."""
    if parsed(triton) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return f"Triton {triton} is too old: {needed} or newer is needed"
    for fault in faults(triton, capability):
        if not fault.avoided:
            major, minor = capability
            return f"Triton {triton} on sm_{major}{minor}: {fault.pattern} ({fault.source})"
    return None


def interpreting() -> bool:
    """Return whether Triton interprets kernels in this process, so that they run on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


def installed() -> str | None:
    """Return the version of Triton, or ``None``."""
    for name in ("triton", "pytorch-triton"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def constant(function: Function) -> Function:
    """Mark a function that torch.compile calls while it traces, as a constant of the graph.

    ``torch.compiler.assume_constant_result`` sets the same mark, and imports the compiler first.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


OFFLINE = "MNEMIC_OFFLINE"
"""Set while launches are compilations for a device that is not there."""


ALONE = "MNEMIC_ALONE"
"""Set where kernels alone are looked at: arguments that they refuse are raised, not run."""


class Refused(RuntimeError):
    """Arguments that no kernel takes, where nothing is to run in its place."""


ASSEMBLER = "PTXAS_OPTIONS"
"""Where Triton finds what the user tells NVIDIA's assembler of all kernels."""


def to_assembler(more: str) -> str:
    """Join a launch's options for NVIDIA's assembler: the user's, and some more."""
    return " ".join(filter(None, (os.environ.get(ASSEMBLER), more)))


@cache
def tells_assembler() -> bool:
    """Return whether Triton hands a launch's options on to NVIDIA's assembler."""
    try:
        compiler: Any = __import__("triton.backends.nvidia.compiler", fromlist=["CUDAOptions"])
    except ImportError:
        return False
    return torch.version.hip is None and "ptx_options" in vars(compiler.CUDAOptions)


def offline() -> str:
    """Return the device that launches are compiled for though not there; empty if they run."""
    return os.environ.get(OFFLINE, "")


def elsewhere() -> bool:
    """Return whether kernels launched with CPU tensors are interpreted, or compiled offline."""
    return interpreting() or bool(offline())


@constant
def unusable(device: torch.device) -> str | None:
    """Return why the fused form does not run on a device, or ``None``."""
    if elsewhere():
        return None
    return _unusable(device)


@cache
def _unusable(device: torch.device) -> str | None:
    triton = installed()
    if triton is None:
        return "Triton is not installed"
    if device.type != "cuda":
        return f"its kernels run on a GPU, and the arguments are on {device.type}"
    return distrusted(triton, torch.cuda.get_device_capability(device))


@constant
def replaced(name: str, reason: str, instead: str) -> None:
    """Say once what runs in the place of a rule's kernel, and why.

    Raises ``Refused`` with the reason where kernels alone are looked at.
    """
    if os.environ.get(ALONE):
        raise Refused(reason)
    announced(f"{name}: {reason}; {instead}")


@constant
def announce(message: str) -> None:
    """Warn, once a process for each message."""
    announced(message)


@cache
def announced(message: str) -> None:
    """Warn once for each message; torch.compile has ``announce`` call it while it traces."""
    warnings.warn(message, RuntimeWarning, stacklevel=4)


def failures() -> tuple[type[Exception], ...]:
    """Return the exceptions of a kernel that does not compile, fit or run."""
    if installed() is None:
        return (RuntimeError,)
    errors: Any = __import__("triton.errors", fromlist=["TritonError"])
    return (RuntimeError, errors.TritonError)
