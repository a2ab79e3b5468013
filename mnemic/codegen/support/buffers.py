"""Buffers that kernels write to; debug mode poisons and guards them, so that faults show.

With ``MNEMIC_DEBUG`` set (and not 0) a new buffer is filled with NaN, and so is a band on either
side of it: an entry that no kernel wrote stays NaN, an unmasked read out of bounds brings NaN into
the results, and ``watched`` finds a write out of bounds. Integers are filled with their least
value.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

BAND = 1024
"""Entries of a guard: a multiple of what alignment asks for."""

_watching: list[list[tuple[str, Tensor]]] = []
"""The whole buffers, bands and all, made inside each ``watched``."""


def debugging() -> bool:
    """Return whether ``MNEMIC_DEBUG`` asks for checks that cost time."""
    return os.environ.get("MNEMIC_DEBUG", "0") not in ("", "0")


def empty(shape: tuple[int, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Make a contiguous buffer on the device of ``like``, and of its dtype if none is given."""
    dtype = dtype or like.dtype
    if not debugging():
        return torch.empty(shape, dtype=dtype, device=like.device)
    size = torch.Size(shape).numel()
    whole = torch.full((size + 2 * BAND,), _poison(dtype), dtype=dtype, device=like.device)
    for seen in _watching:
        seen.append((f"{list(shape)} {dtype}", whole))
    return whole[BAND : BAND + size].view(shape)


def guarded(x: Tensor) -> Tensor:
    """Return a contiguous copy of x that lies between guards; x itself outside debug mode."""
    if not debugging():
        return x
    found = empty(tuple(x.shape), x)
    return found.copy_(x)


def _poison(dtype: torch.dtype) -> float | int | bool:
    if dtype == torch.bool:
        return True
    return float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min


def _whole(buffer: Tensor) -> bool:
    bands = torch.cat([buffer[:BAND], buffer[-BAND:]])
    if buffer.dtype.is_floating_point:
        return bool(bands.isnan().all())
    return bool((bands == _poison(buffer.dtype)).all())


@contextmanager
def watched() -> Iterator[None]:
    """Check the guards of every buffer made inside.

    Raises ``RuntimeError`` where something was written beyond a buffer.
    """
    made: list[tuple[str, Tensor]] = []
    _watching.append(made)
    try:
        yield
    finally:
        _watching.remove(made)
    found = [name for name, whole in made if not _whole(whole)]
    if found:
        raise RuntimeError(f"written beyond buffers of {', '.join(found)}")


def unwritten(named: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the names of tensors that hold NaN, so that some entry was never written."""
    return tuple(n for n, x in named.items() if x.is_floating_point() and bool(x.isnan().any()))
