"""Sums over chunks that see the same rows: c − 1 rows stand before a sequence's first, and a chunk
of a window's rows reads into those of the chunk before.

Numbered from the first of these c − 1, a sequence's row r is seen by its tokens r − c + 1, …, r. A
chunk's tile has an entry s for what its tokens low, …, low + live − 1 see,

    by row       the row low + s,               0 ≤ s < live + c − 1
    by slot      the row low + s // c + s % c,  0 ≤ s < c · live

so a row's sum has an entry of each chunk, or of each token, that sees it. Sums go from the last of
these to the first, whatever else runs on the device.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Chunks:
    """Where sequences and their chunks lie: of S sequences the ends in rows, ``ends`` [S + 1] from
    0 on, the rows of the ``first`` chunk [S] and its number among all chunks' tiles, ``place``
    [S]; how many ``rows`` each further chunk has, and the windows' ``width`` c."""

    ends: Tensor
    first: Tensor
    place: Tensor
    rows: int
    width: int


@dataclass(frozen=True)
class Entries:
    """The entries that are summed for each of N rows: the number of their tile, their place in it,
    and whether there is one, [n, N] each."""

    place: Tensor
    entry: Tensor
    there: Tensor

    def of(self, tiles: Tensor) -> Tensor:
        """Return the sums of tiles [P, H, SOURCES, K], [N, H, K]; what lies beside them is not read."""
        found = torch.zeros((), dtype=tiles.dtype, device=tiles.device)
        for place, entry, there in zip(self.place, self.entry, self.there, strict=True):
            found = found + torch.where(there[:, None, None], tiles[place, :, entry], 0)
        return found


def entries(chunks: Chunks, count: int, *, slots: bool) -> Entries:
    """Find what is summed for each of ``count`` rows, those before each sequence's first among
    them; ``slots``: of tiles by slot."""
    width, rows = chunks.width, chunks.rows
    device = chunks.ends.device
    number, sequences = (torch.arange(n, device=device) for n in (count, len(chunks.first)))
    starts = chunks.ends[:-1] + (width - 1) * sequences
    sequence = torch.searchsorted(starts, number, right=True) - 1
    row, first = number - starts[sequence], chunks.first[sequence]
    length = (chunks.ends[1:] - chunks.ends[:-1])[sequence]
    most = width if slots else 2 + (width - 2) // rows  # tokens, or chunks, that see a row
    back = torch.arange(most, device=device)[:, None]
    if slots:
        token = row - back
        chunk, there = (token + rows - first) // rows, (token >= 0) & (token < length)
    else:
        chunk = (torch.minimum(row, length - 1) + rows - first) // rows - back
        there = (chunk >= 0) & (length > 0)
    low = (first + (chunk - 1) * rows).clamp(min=0)
    entry = (token - low) * width + back if slots else row - low
    if not slots:
        there = there & (entry < torch.minimum(first + chunk * rows, length) - low + width - 1)
    place = chunks.place[sequence] + chunk
    return Entries(torch.where(there, place, 0), torch.where(there, entry, 0), there)
