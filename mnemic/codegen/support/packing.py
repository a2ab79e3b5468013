"""Documents of a packed row in batches, by the digits or the size of their lengths.

If a state can be carried on from anywhere, the binary digits of the lengths are processed from the
highest: all documents whose length has the digit run that many tokens further, at once. Else
documents of equal length run together, or, if no state is needed, those of similar size: shorter
ones are padded with copies of their last tokens, which the tokens before do not see.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Documents by number, and the places of their tokens in the row: ``tokens`` from each of
    ``first``, of which a document has its own of ``lengths``."""

    documents: tuple[int, ...]
    first: tuple[int, ...]
    lengths: tuple[int, ...]
    tokens: int

    def places(self, device: torch.device) -> Tensor:
        """Return where the tokens lie in the row, [D, T]: past a document's end, its last token."""
        first, last = (torch.tensor(n, device=device)[:, None] for n in (self.first, self.lengths))
        return first + torch.minimum(torch.arange(self.tokens, device=device), last - 1)

    def own(self, device: torch.device) -> Tensor:
        """Return which of the batch's places are a document's own tokens, [D, T]."""
        lengths = torch.tensor(self.lengths, device=device)[:, None]
        return torch.arange(self.tokens, device=device) < lengths


def by_digits(bounds: Sequence[int]) -> Iterator[Batch]:
    """Yield every document's tokens by the binary digits of its length, the highest first."""
    at, lengths = list(bounds[:-1]), [high - low for low, high in pairwise(bounds)]
    for digit in reversed(range(max(lengths, default=0).bit_length())):
        size = 1 << digit
        some = tuple(i for i, length in enumerate(lengths) if length & size)
        if some:
            yield Batch(some, tuple(at[i] for i in some), (size,) * len(some), size)
        for i in some:
            at[i] += size


def by_length(bounds: Sequence[int]) -> Iterator[Batch]:
    """Yield the documents in batches of one length each, the longest first."""
    lengths = [high - low for low, high in pairwise(bounds)]
    for length in sorted(set(lengths), reverse=True):
        some = tuple(i for i, own in enumerate(lengths) if own == length)
        yield Batch(some, tuple(bounds[i] for i in some), (length,) * len(some), length)


def by_size(bounds: Sequence[int]) -> Iterator[Batch]:
    """Yield documents that are not empty, batched by how many binary digits their lengths have."""
    lengths = [high - low for low, high in pairwise(bounds)]
    for digits in sorted({n.bit_length() for n in lengths if n}, reverse=True):
        some = tuple(i for i, own in enumerate(lengths) if own.bit_length() == digits)
        own = tuple(lengths[i] for i in some)
        yield Batch(some, tuple(bounds[i] for i in some), own, max(own))


def unpacked(outs: Sequence[Tensor], batches: Sequence[Batch]) -> Tensor:
    """Put the outputs [D, T, …] of batches back into the packed row, [1, T, …]."""
    device = outs[0].device
    flat, order = [], []
    for out, batch in zip(outs, batches, strict=True):
        own, places = batch.own(device), batch.places(device)
        whole = min(batch.lengths) == batch.tokens
        flat.append(out.flatten(0, 1) if whole else out[own])
        order.append(places.flatten() if whole else places[own])
    return torch.cat(flat)[torch.argsort(torch.cat(order))][None]
