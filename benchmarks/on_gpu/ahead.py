"""Compile ahead what a GPU that is elsewhere will be asked to run.

Every trial of ``verify`` and every row is gone through with tensors on the CPU and a stand-in for
the device, so that launches are compilations (``mnemic.kernels.offline``). Two minutes of a GPU are
twenty of two cores, so where a GPU is lent by the minute this is what to do before.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from on_gpu import keys, steps, subject
from on_gpu.rows import Row


@dataclass(frozen=True)
class Device:
    """What kernels are cut and compiled for: an H100 or H200 unless told."""

    name: str = "sm_90"
    processors: int = 132
    registers: int = 65_536
    threads: int = 2_048
    shared: int = 232_448
    faulty: bool = True
    """Whether Triton's version is one that compiles some products wrongly there."""


def verified(folder: Path, spec: str, dtypes: Iterable[str], device: Device) -> Iterator[str]:
    """Compile what the trials of a spec launch; yield what did not compile, and why."""
    module = subject.load(folder / spec)
    found = stand_in(module, device)
    verify, cases, compared = (found[name] for name in ("verify", "cases", "compared"))
    small = cases.Plan(
        torch.device("cpu"), ("triton",), tuple(getattr(torch, d) for d in dtypes), 64
    )
    for wanted in (small, replace(small, width=128, batch=1, tokens=600)):
        for case in cases.cases(module.Layer, wanted):
            for dtype in wanted.dtypes:
                for form, way, where in verify._ways(module.rule, case, wanted):
                    try:
                        with way:
                            compared.everything(module.rule, case, form, dtype, dtype, wanted.chunk)
                    except Exception as error:
                        yield f"{spec}, {where}, {dtype}: {type(error).__name__}: {error}"
    if any(hasattr(m, "checkable") for m in found.values()):
        yield from _steps(module, found, small, spec)


def _steps(
    module: ModuleType, found: dict[str, ModuleType], small: Any, spec: str
) -> Iterator[str]:  # fmt: skip
    """Compile the kernels of the layer's token."""
    stepped = next(m for m in found.values() if hasattr(m, "checkable"))
    made = found["verify"].made
    if not stepped.checkable(made(module.Layer, small, small.width)):
        return
    for dtype in small.dtypes:
        for along in (False, True):
            width, tries = small.width, []
            try:
                while not tries and width >= found["verify"].NARROWEST:
                    layer, width = made(module.Layer, small, width), width // 2
                    tries = list(
                        stepped.tried(layer, dtype, small.device, small.batch, along=along)
                    )
            except Exception as error:
                yield f"{spec}, step, {dtype}: {type(error).__name__}: {error}"


def measured(folder: Path, row: Row, device: Device) -> Iterator[str]:
    """Compile what a row's passes launch; yield what did not compile, and why."""
    module = subject.load(folder / row.spec)
    stand_in(module, device)
    made = subject.Subject.of(module, row, "cpu", torch.bfloat16)
    ways = (steps.forward,) if row.decode else (steps.forward, steps.both)
    for way in ways:
        try:
            way(made.form("triton"), made.arguments)()
        except Exception as error:
            yield f"{row.name}, {way.__name__}: {type(error).__name__}: {error}"


def stand_in(module: ModuleType, device: Device) -> dict[str, ModuleType]:
    """Have a compiled folder cut its kernels for a device that is not there; return its modules."""
    names = [n for _, n, _ in pkgutil.iter_modules(module.__path__)]
    found = {
        n: importlib.import_module(f"{module.__name__}.{n}")
        for n in names if n != "__main__" and not n.startswith("test_")
    }  # fmt: skip
    for one in found.values():
        if hasattr(one, "_limits"):
            limits = one.Limits(device.processors, device.registers, device.threads, device.shared)
            one._limits = lambda *_, limits=limits: limits
        if hasattr(one, "faulty"):
            one.faulty = lambda _: device.faulty
    return found


def compiled(folder: Path, specs: Iterable[str], rows: Iterable[Row], dtypes: Iterable[str],
             device: Device = Device()) -> Iterator[str]:  # fmt: skip
    """Compile all that specs' trials and rows launch into the shared cache, and pack it."""
    keys.shared()
    from mnemic.kernels.limits import target
    from mnemic.kernels.offline import compiling

    with compiling(target(device.name)) as log:
        for spec in specs:
            yield from verified(folder, spec, dtypes, device)
            yield f"{spec}: {len(log.seconds)} kernels, {sum(log.seconds.values()):.0f} s"
        for row in rows:
            yield from measured(folder, row, device)
    yield f"packed {keys.pack(folder)} kernels into {folder / keys.PACKED}"
