"""The interfaces that this package uses: a memory layer to stack, a task to train on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

State = Any
"""A layer's own state: tensors, in whatever containers the layer likes."""

MakeLayer = Callable[[int, int], nn.Module]
"""``make_layer(dim, index)``: the memory layer of block ``index``.

The layer is called as ``layer(x, *, state=None, output_state=False, mask=None)`` with x
[B, T, dim] and gives y [B, T, dim], or ``(y, state)`` with ``output_state``;
``layer.step(x_t, state)`` with x_t [B, dim] gives ``(y_t, state)``. ``state=None`` starts
afresh; mask [B, T] is true at tokens and false at padding.
"""

Split = Literal["train", "test"]
IGNORED = -100
"""The target of a position that is not scored."""


class Batch(Protocol):
    """Sequences and what should be predicted; both [B, T], long."""

    @property
    def inputs(self) -> Tensor:
        """The tokens to read at each position."""

    @property
    def targets(self) -> Tensor:
        """The token to predict at each position; -100 where none is scored."""


class Task(Protocol):
    """A seeded stream of batches and a score, as `mnemic.search.tasks.Task` has them."""

    name: ClassVar[str]
    metric: ClassVar[str]
    higher_is_better: ClassVar[bool]
    digest: ClassVar[str | None]

    @property
    def options(self) -> Any:
        """The task's options, a frozen dataclass."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""

    @property
    def chance(self) -> float:
        """The score of a guess."""

    @property
    def ceiling(self) -> float:
        """The best score."""

    @property
    def facts(self) -> dict[str, str | int]:
        """Further facts that a result must record."""

    def generator(self, seed: int, split: Split) -> torch.Generator:
        """Return the source of randomness of a split's stream."""

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw the next ``size`` sequences of a stream."""

    @property
    def levels(self) -> Sequence[Any]:
        """Tasks to be trained in turn, the last this one."""

    def mastered(self, score: float) -> bool:
        """Return whether a level is learned well enough for the next."""

    def decoder(self, dim: int) -> nn.Module | None:
        """Return what stands between the stream and the head, if anything."""

    def score(self, logits: Tensor, targets: Tensor) -> float:
        """Return a mean over the scored positions of logits [..., V] and targets [...]."""
