"""Llama's macro design around a memory layer."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from mnemic.models.contract import State
from mnemic.models.feed_forward import make_feed_forward


class Block(nn.Module):
    """h = x + memory(norm(x)); y = h + feed_forward(norm(h)), norms RMS.

    Args:
        dim: of the stream, [B, T, dim].
        memory: a memory layer as in `mnemic.models.contract.MakeLayer`.
        feed_forward: the kernel of the second half, a memory of learned pairs (see
            `mnemic.models.feed_forward`): ``swiglu``, ``relu``, ``silu``, ``solu``, ``exp``; or
            ``none``, which leaves it out.
    """

    def __init__(self, dim: int, memory: nn.Module, feed_forward: str = "swiglu") -> None:
        super().__init__()
        self.memory_norm = nn.RMSNorm(dim, eps=1e-6)
        self.memory = memory
        self.feed_forward = make_feed_forward(feed_forward, dim)
        self.feed_forward_norm = self.feed_forward and nn.RMSNorm(dim, eps=1e-6)

    def forward(
        self,
        x: Tensor,
        *,
        state: State = None,
        output_state: bool = False,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Run the block on [B, T, dim]; return the new stream and the memory's state or None."""
        found = self.memory(self.memory_norm(x), state=state, output_state=output_state, mask=mask)
        y, after = found if output_state else (found, None)
        return self._feed(x + y), after

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """Run the block on one token, [B, dim]; return the new stream and the memory's state."""
        y_t, state = self.memory.step(self.memory_norm(x_t), state)  # type: ignore[operator]
        return self._feed(x_t + y_t), state

    def _feed(self, h: Tensor) -> Tensor:
        if self.feed_forward is None:
            return h
        return cast(Tensor, h + self.feed_forward(cast(nn.RMSNorm, self.feed_forward_norm)(h)))
