"""The short convolution before a rule: depthwise, causal, with a tail that is carried."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .documents import Documents
from .pickled import Pickled

Counted = Tensor | Documents | None
"""Which tokens count: so many of each row, documents packed into one row, or all."""


class ShortConvolution(Pickled, nn.Module):
    """y_t = Σ_j w_j ∘ x_{t−taps+1+j}, [B, T, C] → [B, T, C].

    Args:
        channels: C.
        taps: the tokens that each output sees, at least 1.
    """

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.taps = taps
        self.weight = nn.Parameter(torch.empty(channels, taps))
        nn.init.uniform_(self.weight, -1 / math.sqrt(taps), 1 / math.sqrt(taps))

    def extra_repr(self) -> str:
        """Return the sizes, for ``print(layer)``."""
        return f"channels={self.weight.shape[0]}, taps={self.taps}"

    def forward(
        self, x: Tensor, tail: Tensor | None, lengths: Counted,
        ends: tuple[int, ...] | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Convolve x [B, T, C]; the tail is the last taps − 1 tokens, [B, taps − 1, C].

        ``lengths`` [B]: the tokens of each row that count, where not all do; or the documents of
        which x [1, T, C] consists, each with a tail of its own. x may have the first of the
        channels only. Returns the new tail too; with ``ends`` the tails after so many tokens,
        [B, n, taps − 1, C].
        """
        if isinstance(lengths, Documents):
            return self._packed(x, tail, lengths)
        if tail is None:
            tail = x.new_zeros(x.shape[0], self.taps - 1, x.shape[2])
        whole = torch.cat([tail.to(x), x], 1)
        if ends is not None:
            width = self.taps - 1
            tails = [whole[:, end : end + width] for end in ends]
            return self._convolved(whole, x), torch.stack(tails, 1)
        return self._convolved(whole, x), self._tail(whole, x, lengths)

    def _packed(
        self, x: Tensor, tail: Tensor | None, documents: Documents
    ) -> tuple[Tensor, Tensor]:
        width = self.taps - 1
        if tail is None:
            tail = x.new_zeros(documents.count, width, x.shape[2])
        whole = documents.behind(x, tail)
        y = documents.own(self._convolved(whole, x), width)
        return y, documents.last(whole, width)

    def _convolved(self, whole: Tensor, x: Tensor) -> Tensor:
        if not x.shape[1]:
            return x
        # as two dimensions of which one is 1: torch's depthwise conv1d is 3 times slower on a CPU
        kernel = self.weight[: x.shape[2], None, None, :]
        return F.conv2d(whole.mT[:, :, None], kernel, groups=x.shape[2])[:, :, 0].mT

    def _tail(self, whole: Tensor, x: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is None:
            return whole[:, x.shape[1] :]
        index = lengths[:, None] + torch.arange(self.taps - 1, device=x.device)
        return whole.gather(1, index[..., None].expand(-1, -1, x.shape[2]))
