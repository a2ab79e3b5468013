"""Whether what a call is sure to hold fits into memory, before anything is computed."""

import os
from functools import cache

import torch

from .arguments import fail
from .signature import Signature


@cache
def memory(device: torch.device) -> int | None:
    """Return the bytes that a device has in all, ``None`` where it does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type != "cpu" or not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check(signature: Signature, held: int, copies: int, device: torch.device) -> None:
    """Refuse states of ``held`` bytes, of which ``copies`` are kept, where no memory is so large.

    Raises ``ArgumentError``.
    """
    room = memory(device)
    if room is None or held * copies <= room:
        return
    kept = f" for each of {copies} tokens that the gradient goes back through" * (copies > 1)
    hint = "take form='chunk', smaller heads or fewer features" if copies > 1 else (
        "take smaller heads, fewer features or a smaller batch"
    )  # fmt: skip
    raise fail(
        signature,
        f"states take {_size(held)}{kept}, and the device has {_size(room)} in all; {hint}",
    )


def _size(count: int) -> str:
    """Write bytes as people read them.

    >>> _size(3_400_000), _size(27_400_000_000)
    ('3.4 MB', '27.4 GB')
    """
    unit, size = ("GB", 1e9) if count >= 1e9 else ("MB", 1e6)
    return f"{count / size:,.1f} {unit}"
