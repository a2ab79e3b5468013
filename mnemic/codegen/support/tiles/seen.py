"""Sums onto rows that several chunks see: the rows of windows.

A sequence has c − 1 such rows before its first. Numbered from the first of these c − 1, row r is
seen by the tokens r − c + 1, …, r of its sequence. A chunk's tile has an entry s for what its
tokens low, …, low + live − 1 see,

    by row       the row low + s,               0 ≤ s < live + c − 1
    by slot      the row low + s // c + s % c,  0 ≤ s < c · live

so a sum has an entry of each chunk, or of each token, that sees the row: the last one's first.
"""

import triton
import triton.language as tl


@triton.jit
def sum_seen_rows(
    pointer, slot, heads, head, row, first, length, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    SOURCES: tl.constexpr, channel, width, REAL: tl.constexpr,
):  # fmt: skip
    """Add tiles [places, SOURCES, width] up onto rows, of what chunks see by row: [C, BW]."""
    found = tl.zeros((row.shape[0], channel.shape[0]), REAL)
    last = (tl.minimum(row, length - 1) + ROWS - first) // ROWS  # its last chunk, of so many
    for back in tl.range(0, 2 + (WIDTH - 2) // ROWS, loop_unroll_factor=2):
        chunk = last - back
        low = tl.maximum(first + (chunk - 1) * ROWS, 0)
        behind = tl.minimum(first + chunk * ROWS, length) + WIDTH - 1
        there = (chunk >= 0) & (row < behind) & (low < length)
        place = ((slot + chunk) * heads + head) * SOURCES + row - low
        found += _entries(pointer, place, there, channel, width, REAL)
    return found


@triton.jit
def sum_seen_slots(
    pointer, slot, heads, head, row, first, length, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    SOURCES: tl.constexpr, channel, width, REAL: tl.constexpr,
):  # fmt: skip
    """Add tiles [places, SOURCES, width] up onto rows, of what tokens see slot by slot: [C, BW]."""
    found = tl.zeros((row.shape[0], channel.shape[0]), REAL)
    for back in tl.range(0, WIDTH, loop_unroll_factor=4):
        token = row - back
        chunk = (token + ROWS - first) // ROWS
        low = tl.maximum(first + (chunk - 1) * ROWS, 0)
        there = (token >= 0) & (token < length)
        place = ((slot + chunk) * heads + head) * SOURCES + (token - low) * WIDTH + back
        found += _entries(pointer, place, there, channel, width, REAL)
    return found


@triton.jit
def _entries(pointer, place, there, channel, width, REAL: tl.constexpr):
    at = place[:, None] * width + channel[None, :]
    there = there[:, None] & (channel < width)[None, :]
    return tl.load(pointer + at, mask=there, other=0.0).to(REAL)
