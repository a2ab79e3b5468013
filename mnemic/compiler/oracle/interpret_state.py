"""What the interpreter carries from token to token: matrices in every role, and a window's tail."""

from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pairs:
    """Tokens side by side along axis 1, [B, c, H, R, F]; ``square`` is ‖φ‖², ``column`` the kept
    pair that a token writes to (behind a kernel), ``gamma`` its weight."""

    predict: Tensor
    erase: Tensor
    write: Tensor
    value: Tensor
    raw: Tensor
    square: Tensor
    column: Tensor
    gamma: Tensor

    def joined(self, newer: "Pairs") -> "Pairs":
        """Return these tokens and then the newer ones."""
        return Pairs(*(torch.cat([a, b], 1) for a, b in zip(_all(self), _all(newer), strict=True)))

    def last(self, count: int) -> "Pairs":
        """Return the last ``count`` tokens."""
        return Pairs(*(x[:, x.shape[1] - count :] for x in _all(self)))


@dataclass(frozen=True)
class Counts:
    """The coefficient that each kept pair has in the memory, the momentum, the anchor."""

    memory: Tensor
    momentum: Tensor
    anchor: Tensor


@dataclass(frozen=True)
class Averages:
    """Averages of an optimizer that acts entry by entry, what is left of the empty start in each,
    Πβ, and its step."""

    values: tuple[Tensor, ...]
    left: tuple[Tensor, ...]
    step: Tensor


@dataclass(frozen=True)
class Layer:
    """One matrix: A, W as it is read, S, W at the last chunk's end, the norms of its lines.

    Where a kernel's rows are divided by their sums ``counts`` are kept beside, [B, H, 1, N].
    """

    dual: Tensor
    memory: Tensor
    momentum: Tensor
    anchor: Tensor
    norms: Tensor | None = None
    averages: Averages | None = None
    counts: Counts | None = None


@dataclass(frozen=True)
class State:
    """Every matrix in the network's order, and the window's tail."""

    layers: tuple[Layer, ...]
    tail: Pairs


def _all(item: Any) -> list[Any]:
    return [getattr(item, f.name) for f in fields(item)]


def chosen(mask: Tensor, new: Any, old: Any) -> Any:
    """Return the new state where ``mask`` [B] holds, the old one elsewhere."""
    if new is None:
        return None
    if isinstance(new, Tensor):
        return torch.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
    if isinstance(new, tuple):
        return tuple(chosen(mask, a, b) for a, b in zip(new, old, strict=True))
    parts = (chosen(mask, a, b) for a, b in zip(_all(new), _all(old), strict=True))
    return type(new)(*parts)


def counted(layer: Layer, which: Literal["memory", "anchor"]) -> Tensor:
    """Return W with the coefficients of its pairs as one more row, where they are kept."""
    matrix: Tensor = getattr(layer, which)
    if layer.counts is None:
        return matrix
    return torch.cat([matrix, getattr(layer.counts, which)], -2)
