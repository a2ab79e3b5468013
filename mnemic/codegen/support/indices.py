"""Indices that a caller gives, one a row: slots of a pool, states between tokens.

On a device their numbers are not read, since that would wait for it: there it makes sure itself
that they are in range, and tells less.
"""

import torch
from torch import Tensor

from .arguments import fail, not_a_tensor
from .buffers import debugging
from .signature import Signature


def check(signature: Signature, name: str, indices: Tensor, rows: int | None = None) -> None:
    """Raise ``ArgumentError`` unless indices are whole numbers in a row, [rows]."""
    if not isinstance(indices, Tensor):
        raise fail(signature, f"{name}: {not_a_tensor(indices)}")
    whole = indices.dtype in (torch.int32, torch.int64)
    if not whole or indices.ndim != 1 or rows not in (None, len(indices)):
        shown = f"{indices.dtype} {list(indices.shape)}"
        size = "B" if rows is None else rows
        raise fail(signature, f"{name}: read {shown}, torch.int32 or torch.int64 [{size}] needed")


def check_range(
    signature: Signature, name: str, indices: Tensor, inside: Tensor, allowed: str
) -> None:
    """Raise ``ArgumentError`` unless all is ``inside``, [rows]; on a device in debug mode only,
    which else ends with ``RuntimeError`` where it comes to it."""
    if indices.device.type != "cpu" and not debugging():
        torch._assert_async(inside.all(), f"{name}: {allowed}")
    elif not bool(inside.all()):
        raise fail(signature, f"{name}: read {indices.tolist()}, {allowed}")
