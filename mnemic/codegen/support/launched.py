"""The fused form of a call: which of a rule's kernels runs its rows, and that it does."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from . import fused, levelled, streamed
from .fused import Kernel
from .levelled import Levelled
from .place import Place
from .streamed import Streamed

States = dict[str, Tensor]
Forms = Kernel | Streamed | Levelled


def kernel(kernels: Any, *, short: bool) -> Forms:
    """Of a module of kernels that of chunks, or that of tokens where there are few of them."""
    found: Forms | None = kernels.CHUNK
    if (short or found is None) and kernels.TOKEN is not None:
        found = kernels.TOKEN
    assert found is not None  # a rule without any has no fused form
    return found


def anywhere(kernel: Forms, tensors: Iterable[Tensor]) -> bool:
    """Whether a kernel runs sequences that stand anywhere in their documents, and documents packed
    into one row: those whose states grow are told where they are."""
    return isinstance(kernel, Kernel) and (kernel.backward is not None or not tracked(tensors))


def tracked(tensors: Iterable[Tensor]) -> bool:
    """Whether a gradient may be asked for."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def refused(
    kernel: Forms, rows: Mapping[str, Tensor], states: States
) -> str | None:  # fmt: skip
    """Why a kernel is not for these arguments, or None."""
    gradient = tracked((*rows.values(), *states.values()))
    if isinstance(kernel, Streamed):
        return streamed.refused(kernel, rows, states, gradient=gradient)
    if isinstance(kernel, Levelled):
        return levelled.refused(kernel, rows, states, gradient=gradient)
    return fused.refused(kernel, rows, states, gradient=gradient)


def run(
    kernel: Forms, rows: Mapping[str, Tensor], states: States, place: Place
) -> tuple[Tensor, States]:
    """One batch through a kernel: rows [B, R, H, …], states [M, …] → [B, R, H, d_v], states."""
    if isinstance(kernel, Streamed):
        return streamed.run(kernel, rows, states, place)
    if isinstance(kernel, Levelled):
        return levelled.run(kernel, rows, states, place)
    return fused.run(kernel, rows, states, place)
