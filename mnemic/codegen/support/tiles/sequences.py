"""Where a program's sequence lies: its rows, its place in a document, its chunks.

Sequences are the rows of a batch, or (with ``bounds``, the ends of documents in tokens, from 0) the
documents that are packed into one row. ``bounds`` and ``positions`` may be None.
"""

import triton
import triton.language as tl


@triton.jit
def begin_of(bounds, sequence, total, STEPS: tl.constexpr):
    """Return a sequence's first row, counted over the whole batch."""
    if bounds is None:
        return sequence * total
    else:
        return tl.load(bounds + sequence).to(tl.int64) * STEPS


@triton.jit
def length_of(bounds, sequence, total, STEPS: tl.constexpr):
    """Return how many rows a sequence has."""
    if bounds is None:
        return total
    else:
        low, high = tl.load(bounds + sequence), tl.load(bounds + sequence + 1)
        return (high - low).to(tl.int32) * STEPS


@triton.jit
def rows_in_all(bounds, sequences, total):
    """Count the rows of all sequences."""
    if bounds is None:
        return sequences.to(tl.int64) * total
    else:
        return tl.cast(total, tl.int64)


@triton.jit
def position_of(positions, sequence):
    """Return how many tokens of the document stand before this sequence."""
    if positions is None:
        return 0
    else:
        return tl.load(positions + sequence)


@triton.jit
def first_of(position, ROWS: tl.constexpr, STEPS: tl.constexpr, ALIGNED: tl.constexpr):
    """Count the rows of the first chunk; aligned chunks end at multiples of their tokens."""
    if ALIGNED:
        return ROWS - (position % (ROWS // STEPS)).to(tl.int32) * STEPS
    else:
        return ROWS


@triton.jit
def chunks_of(length, first, ROWS: tl.constexpr):
    """Count the chunks that a sequence's rows make."""
    return tl.where(length > 0, (length - first + 2 * ROWS - 1) // ROWS, 0)


@triton.jit
def slot_of(bounds, sequence, begin, pieces, SPAN: tl.constexpr):
    """Return where the states at the starts of a sequence's pieces are kept.

    A piece has ``SPAN`` rows, the first may have fewer: documents from row a to row b make at most
    b // SPAN − a // SPAN + 2 of them.
    """
    if bounds is None:
        return sequence * pieces
    else:
        return begin // SPAN + 2 * sequence
