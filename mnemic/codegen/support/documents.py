"""Documents packed into one row of a batch, each a sequence of its own: nothing is read back."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Documents:
    """Where documents begin and end in a row of ``tokens``: ``ends`` [S + 1] from 0, on the device.

    ``number`` [T] tells the document of each token. No document has more than ``longest`` tokens;
    0 where that is not known.
    """

    ends: Tensor
    number: Tensor
    tokens: int
    longest: int = 0

    @classmethod
    def of(cls, ends: Tensor, like: Tensor) -> "Documents":
        """Find the documents of a row of ``like`` [1, T, …]; the device checks their ends."""
        tokens, longest = like.shape[1], 0
        if ends.device != like.device and not torch.compiler.is_compiling():
            longest = int(ends.diff().max())  # ends on the host can be read
        ends = ends.to(like.device, torch.int64).contiguous()
        rising = (ends.diff() >= 0).all() & (ends[0] == 0) & (ends[-1] == tokens)
        torch._assert_async(rising, f"cu_seqlens must rise from 0 to T = {tokens}")
        time = torch.arange(tokens, device=ends.device)
        number = torch.searchsorted(ends[1:-1].contiguous(), time, right=True)
        return cls(ends, number, tokens, longest)

    @property
    def count(self) -> int:
        """The number of documents, S."""
        return self.ends.shape[0] - 1

    @property
    def lengths(self) -> Tensor:
        """Tokens of each document, [S]."""
        return self.ends.diff()

    @property
    def time(self) -> Tensor:
        """Tokens before each in its document, [T]."""
        return torch.arange(self.tokens, device=self.ends.device) - self.ends[self.number]

    def first(self, x: Tensor, steps: int) -> Tensor:
        """Return the first row of each document, [1, T·n, …] → [S, …]; any if it is empty."""
        at = self.ends[:-1].clamp(max=self.tokens - 1)
        return x[0].index_select(0, at * steps)

    def behind(self, x: Tensor, tails: Tensor) -> Tensor:
        """Put each document behind a tail of its own: [1, T, …], [S, c, …] → [1, T + S·c, …]."""
        width = tails.shape[1]
        whole = x.new_empty(self.tokens + self.count * width, *x.shape[2:])
        whole = whole.index_copy(0, self._ahead(width), tails.to(x).flatten(0, 1))
        return whole.index_copy(0, self._places(width) + width, x[0])[None]

    def last(self, whole: Tensor, width: int) -> Tensor:
        """Return the last c of each document and its tail: [1, T + S·c, …] → [S, c, …]."""
        places = self._ahead(width).unflatten(0, (self.count, width)) + self.lengths[:, None]
        return whole[0].index_select(0, places.flatten()).unflatten(0, (self.count, width))

    def own(self, x: Tensor, width: int) -> Tensor:
        """Return what stands ``width`` rows before each token, of rows with so many behind them.

        [1, T + S·c − c, …] → [1, T, …]: of windows over ``behind``, the tokens'.
        """
        return x.index_select(1, self._places(width))

    def sums(self, x: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """Add up along each document, from ``before``: [1, T, …], [S, …] → [1, T, …], [S, …]."""
        sums = torch.cat([torch.zeros_like(x[0, :1]), x[0].cumsum(0)])
        starts = sums[self.ends[:-1]]
        each = sums[1:] + (before - starts)[self.number]
        return each[None], before + sums[self.ends[1:]] - starts

    def _places(self, width: int) -> Tensor:
        """Return each token's place, less one width, where documents have tails before them."""
        return torch.arange(self.tokens, device=self.ends.device) + self.number * width

    def _ahead(self, width: int) -> Tensor:
        """Return where the tails stand, [S·c]."""
        numbers = torch.arange(self.count, device=self.ends.device)
        starts = self.ends[:-1] + numbers * width
        return (starts[:, None] + torch.arange(width, device=self.ends.device)).flatten()
