"""What the hybrids share: a memory, an attention, persistent tokens, a gate between the two."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from .arguments import fail
from .block import Beside
from .layer import MemoryLayer
from .norms import rms
from .pickled import Pickled
from .sequence import SequenceLayer
from .vectors import States


class Hybrid(SequenceLayer):
    """A memory and an attention as one layer; a generated module subclasses one of its kinds.

    Its state has the memory's (``memory.…``), the attention's (``attention.…``), and ``tokens``,
    how many there were.

    Args:
        dim: channels of x and o.
        heads, key_dim, value_dim: the memory's sizes in place of the spec's; the attention takes
            the heads.

    Raises:
        ValueError: sizes that do not go together.
    """

    memory_type: ClassVar[type[MemoryLayer]]
    beside: ClassVar[Beside]

    def __init__(
        self,
        dim: int,
        *,
        heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.memory = self.memory_type(dim, heads=heads, key_dim=key_dim, value_dim=value_dim)
        self.block = self.memory_type.block.resized(heads, key_dim, value_dim)
        count = self.beside.persistent
        self.persistent = nn.Parameter(torch.randn(count, dim)) if count else None

    @classmethod
    def grouped(cls) -> int:
        """Return the number of query heads for each key head."""
        return cls.memory_type.block.groups

    def arguments(self, x: Tensor) -> States:
        """Return what the rule would take of a sequence x that the memory is given alone."""
        return self.memory.arguments(x)

    def params(self) -> States:
        """Return what a deep memory starts from, by its matrices' names, [H, rows, columns]."""
        return self.memory.params()

    @property
    def period(self) -> int:
        """Tokens after which the layer does the same again: its anchor's, or a segment's."""
        return max(super().period, self.beside.segment or 1)

    def at_most(self, tokens: int) -> int:
        """Return ``tokens``, or as many as a sequence may have behind the persistent ones."""
        count = self.beside.persistent
        return super().at_most(tokens + count) - count

    def prefix(self, x: Tensor) -> Tensor | None:
        """Return the persistent tokens for each row of x, [B, P, dim], or None if none are."""
        if self.persistent is None:
            return None
        return self.persistent.to(x.dtype).expand(x.shape[0], -1, -1)

    def seen(self, x: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Return how many tokens came before x, [B]; refuse a state that does not tell."""
        if state and "tokens" not in state:
            told = ", ".join(state)
            raise fail(self.rule.signature, f"state: not of this layer, has no tokens; read {told}")
        found = state.get("tokens")
        return (
            torch.zeros(x.shape[0], dtype=torch.long, device=x.device) if found is None else found
        )


class Gate(Pickled, nn.Module):
    """y ⊗ m = rms(y; w_y) ∘ σ(rms(m; w_m)), with the logistic σ and weights w of each channel.

    Titans (section 4.2) norms both branches with learned vectors and lets a non-linearity follow,
    without saying where; here it stands on the memory's branch, which is the gate.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.branch = nn.Parameter(torch.ones(dim))
        self.memory = nn.Parameter(torch.ones(dim))

    def forward(self, y: Tensor, m: Tensor) -> Tensor:
        """Compute y ⊗ m of two branches y and m, all of them [B, T, dim]."""
        return rms(y, self.branch) * torch.sigmoid(rms(m, self.memory))


def part(state: Mapping[str, Tensor], name: str) -> States:
    """Return the states of the part ``name``, by its own names: ``memory.W`` is ``W`` there."""
    start = f"{name}."
    return {n.removeprefix(start): x for n, x in state.items() if n.startswith(start)}


def named(state: Mapping[str, Tensor], name: str) -> States:
    """Return a part's states by the names of the whole: ``W`` of a memory is ``memory.W``."""
    return {f"{name}.{n}": x for n, x in state.items()}
