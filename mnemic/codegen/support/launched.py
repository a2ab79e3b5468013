"""What a rule's fused forms have in common, and which of them runs a call."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from .lengths import FAINTEST
from .place import Place

States = dict[str, Tensor]

TILE = 16
"""Rows of the smallest tile that is multiplied: for fewer the token's kernel runs."""


class Form(Protocol):
    """A fused form: one kernel over fixed states, over kept pairs, or over a tree of levels."""

    def anywhere(self, *, gradient: bool) -> bool:
        """Return whether it runs sequences that stand anywhere in their documents, and documents
        packed into one row: forms whose states grow are told where they are."""

    def refused(
        self, rows: Mapping[str, Tensor], states: States, *, gradient: bool
    ) -> str | None:  # fmt: skip
        """Return why the form does not take these arguments, or None."""

    def run(
        self, rows: Mapping[str, Tensor], states: States, place: Place
    ) -> tuple[Tensor, States]:  # fmt: skip
        """Run one batch: rows [B, R, H, …], states [M, …] → [B, R, H, d_v], states."""


def form_of(kernels: Any, *, short: bool) -> Form:
    """Return the chunk form of a module of kernels, or the token form for short sequences."""
    found: Form | None = kernels.CHUNK
    if (short or found is None) and kernels.TOKEN is not None:
        found = kernels.TOKEN
    assert found is not None  # a rule without any has no fused form
    return found


def tracked(tensors: Iterable[Tensor]) -> bool:
    """Return whether a gradient may be asked for of any of these tensors."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def fainter(log_forget: Tensor, rows: int) -> bool:
    """Return whether some ``rows`` tokens in a row, [B, T, H], leave less than ``FAINTEST`` of the
    past. It waits for the device."""
    total = F.pad(log_forget.double().cumsum(1), (0, 0, 1, 0))
    rows = min(rows, log_forget.shape[1])
    over = total[:, rows:] - total[:, : total.shape[1] - rows]
    return bool((over < math.log(FAINTEST)).any())
