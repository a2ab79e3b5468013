"""The device on which a model is trained or runs, by torch's name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch

from mnemic.errors import EnvironmentFailed, Issue, UsageError, format_issue, nearest

CPU: Final = "cpu"
OPTION: Final = "--device"
OF_SPACE: Final = f"search.device, or {OPTION}"


@dataclass(frozen=True)
class Place:
    """A device, how many GiB of its own memory a process may take, and whether steps of training
    run there under torch.compile."""

    device: str = CPU
    memory: float = math.inf
    compiled: bool = False


def known() -> tuple[str, ...]:
    """Return the devices that torch sees on this machine: ``cpu``, and ``cuda``, ``cuda:0``, ..."""
    if not torch.accelerator.is_available():
        return (CPU,)
    kind = torch.accelerator.current_accelerator()
    assert kind is not None
    numbered = (f"{kind.type}:{index}" for index in range(torch.accelerator.device_count()))
    return (CPU, kind.type, *numbered)


def demand_device(name: str, option: str = OPTION) -> str:
    """Return the name of a device that is here.

    Args:
        name: torch's name of the device.
        option: the option that gave the name, for the error message.

    Raises:
        UsageError: torch knows no device of that name.
        EnvironmentFailed: the device is not on this machine, or this torch was built without it.
    """
    here = known()
    if name in here:
        return name
    try:
        torch.device(name)
    except RuntimeError:
        issue = Issue("", option, name, here, nearest(name, (*here, "cuda")))
        raise UsageError(format_issue(issue)) from None
    built = "" if torch.version.cuda or torch.version.hip else ", a build without CUDA"
    raise EnvironmentFailed(
        f"{option}: read {name!r}, but torch {torch.__version__}{built} sees only "
        f"{', '.join(here)} here"
    )


def name_of(device: str) -> str:
    """Return what a device is called: ``cpu``, the name of a GPU, or the device's kind."""
    kind = torch.device(device).type
    return torch.cuda.get_device_name(device) if kind == "cuda" else kind


def bound_memory(place: Place) -> None:
    """Let this process allocate no more of a CUDA device's memory than its place says.

    Torch raises `torch.OutOfMemoryError` beyond. Other devices are not bounded here.
    """
    if torch.device(place.device).type != "cuda" or math.isinf(place.memory):
        return
    whole = torch.cuda.get_device_properties(place.device).total_memory
    share = min(1.0, place.memory * 2**30 / whole)
    torch.cuda.set_per_process_memory_fraction(share, torch.device(place.device).index)
