"""What a call holds: refused where no memory is so large, computed again where it is too much."""

import os
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from .arguments import fail
from .calls import Pieces, States
from .signature import Signature
from .transforms import transformed

LIMIT = 2**30
"""Bytes that a gradient of layers may keep on a CPU; elsewhere an eighth of the device's memory."""
COPIES = 8
"""Of a token's states, at most, that it keeps; with the five steps of Newton–Schulz seven."""


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
    """Bytes as people read them.

    >>> _size(3_400_000), _size(27_400_000_000)
    ('3.4 MB', '27.4 GB')
    """
    unit, size = ("GB", 1e9) if count >= 1e9 else ("MB", 1e6)
    return f"{count / size:,.1f} {unit}"


def in_parts(
    through: Callable[..., tuple[Tensor, States]], rows: States, states: States, pieces: Pieces,
    batch: int,
) -> tuple[Tensor, States]:  # fmt: skip
    """Take a batch through its chunks: at once, or some sequences after others and each chunk
    computed again for its gradient, where that would keep too much of the memory at every token."""
    single = [(at + i * size, size, 1) for at, size, count in pieces for i in range(count)]
    each = sum(x.numel() * x.element_size() for x in states.values())
    device = next(iter(states.values())).device
    most = LIMIT if device.type == "cpu" else (memory(device) or 0) // 8
    plain = not torch.is_grad_enabled() or torch.compiler.is_compiling() or transformed()
    if plain or COPIES * each * sum(size for _, size, _ in single) <= most:
        return through(rows, states, pieces)

    def some(first: int, last: int) -> tuple[States, States]:
        own = {n: x if x.ndim < 3 else x[first:last] for n, x in rows.items()}
        folded = {n: x.unflatten(0, (batch, -1))[first:last] for n, x in states.items()}
        return own, {n: x.flatten(0, 1) for n, x in folded.items()}

    seen: dict[int, Tensor] = {}  # by storage; alive, so that no address comes twice
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: seen.setdefault(x.untyped_storage().data_ptr(), x), lambda x: x
    ):
        through(*some(0, 1), single[:1])
    kept = sum(x.untyped_storage().nbytes() for x in seen.values())
    if kept * len(single) * batch <= most:
        return through(rows, states, pieces)
    step = max(1, most // kept)
    found = [through(*some(at, at + step), single, True) for at in range(0, batch, step)]
    ends = {name: torch.cat([after[name] for _, after in found]) for name in states}
    return torch.cat([out for out, _ in found]), ends
