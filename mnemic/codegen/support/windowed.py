"""What MAG and MAL share: sliding-window attention, and a memory that sees the prefix too."""

import torch
from torch import Tensor

from .attention import WindowedAttention
from .hybrid import Hybrid
from .vectors import States


class Windowed(Hybrid):
    """A hybrid whose attention slides a window over the tokens; sizes as in ``Hybrid``."""

    def __init__(
        self,
        dim: int,
        *,
        heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
    ) -> None:
        super().__init__(dim, heads=heads, key_dim=key_dim, value_dim=value_dim)
        assert self.beside.window is not None
        rotary, window = self.beside.rotary, self.beside.window
        self.attention = WindowedAttention(dim, self.block, rotary, window)

    def remembered(
        self, x: Tensor, state: States, lengths: Tensor | None, form: str, prefix: Tensor | None
    ) -> tuple[Tensor, States]:
        """Return M([p; x]) at every token, the persistent ones too, and the memory's state."""
        if prefix is None:
            return self.memory.rows(x, state, lengths, form)
        whole = torch.cat([prefix, x], 1)
        live = None if lengths is None else lengths + prefix.shape[1]
        return self.memory.rows(whole, state, live, form)
