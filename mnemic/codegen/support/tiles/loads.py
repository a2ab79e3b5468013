"""Rows and memories between a device's memory and tiles."""

import triton
import triton.language as tl


@triton.jit
def _there(rows, channel, width):
    """Return the mask of a tile of rows and channels: [C, BW], or [C, 1] without padded ones.

    The comparison is bound to a ``constexpr`` here: Triton before 3.7 carries none through the
    return value of another function, and would compile both branches.
    """
    full: tl.constexpr = (width // channel.shape[0]) * channel.shape[0] == width
    if full:
        return rows[:, None]
    else:
        return rows[:, None] & (channel < width)[None, :]


@triton.jit
def anew(live, number):
    """Return the same number as one the compiler takes for another; at least one row is live."""
    return number + (tl.minimum(live, 1) - 1)


@triton.jit
def fresh(live, row, chunk, memory, own):
    """Return a chunk's indices as ones the compiler takes for new, behind a barrier: what is loaded
    with them is loaded again, so that no register has to hold it (or its addresses)."""
    tl.debug_barrier()
    return anew(live, row), anew(live, chunk), anew(live, memory), anew(live, own)


@triton.jit
def load_rows(pointer, origin, stride, t, live, channel, width, REAL: tl.constexpr):
    """Load rows of channels, zero beyond those that are there: [C, BW].

    The distance of two rows is one number, made first: where a row is multiplied by the stride and
    then by the width, NVIDIA's assembler (CUDA 12.8 to 13.0) has been seen to shift the product by
    what belongs to another row, and a warp read rows 32 times as far (dpfp, 256 features).
    """
    place = (t * (stride * width))[:, None] + channel[None, :]  # of 32 bits: within a chunk
    there = _there(t < live, channel, width)
    return tl.load(pointer + origin * width + place, mask=there, other=0.0).to(REAL)


@triton.jit
def load_column(pointer, origin, stride, t, live, REAL: tl.constexpr):
    """Load a number a row: [C]; for rows that are not there the last one, which nothing reads."""
    return tl.load(pointer + origin + tl.minimum(t, live - 1) * stride).to(REAL)


@triton.jit
def load_logs(pointer, origin, stride, t, live, REAL: tl.constexpr):
    """Load logarithms, zero beyond the rows that are there: [C]."""
    return tl.load(pointer + origin + t * stride, mask=t < live, other=0.0).to(REAL)


@triton.jit
def store_rows(pointer, origin, stride, t, live, channel, width, value):
    """Store the rows of channels that are there."""
    place = (t * (stride * width))[:, None] + channel[None, :]
    there = _there(t < live, channel, width)
    tl.store(pointer + origin * width + place, value, mask=there)


@triton.jit
def store_column(pointer, origin, stride, t, live, value):
    """Store a number for each row that is there."""
    tl.store(pointer + origin + t * stride, value, mask=t < live)


@triton.jit
def load_tile(pointer, place, row, channel, width, REAL: tl.constexpr):
    """Load all rows that another kernel has stored of a chunk: [C, BW] of [places, C, width]."""
    at = (row * width)[:, None] + channel[None, :]
    pointers = pointer + place * (row.shape[0] * width) + at
    full: tl.constexpr = (width // channel.shape[0]) * channel.shape[0] == width
    if full:
        return tl.load(pointers).to(REAL)
    return tl.load(pointers, mask=(channel < width)[None, :], other=0.0).to(REAL)


@triton.jit
def store_tile(pointer, place, row, channel, width, value):
    """Store a chunk's rows of channels, all of them, for another kernel."""
    at = (row * width)[:, None] + channel[None, :]
    pointers = pointer + place * (row.shape[0] * width) + at
    full: tl.constexpr = (width // channel.shape[0]) * channel.shape[0] == width
    if full:
        tl.store(pointers, value)
    else:
        tl.store(pointers, value, mask=(channel < width)[None, :])


@triton.jit
def load_matrix(pointer, number, row, rows, column, columns, REAL: tl.constexpr):
    """Load the matrix [rows, columns] with this number, as [columns, rows]."""
    place = pointer + (number * rows * columns + (row[None, :] * columns + column[:, None]))
    full_rows: tl.constexpr = (rows // row.shape[0]) * row.shape[0] == rows
    full_columns: tl.constexpr = (columns // column.shape[0]) * column.shape[0] == columns
    if full_rows and full_columns:
        return tl.load(place).to(REAL)
    there = (row < rows)[None, :] & (column < columns)[:, None]
    return tl.load(place, mask=there, other=0.0).to(REAL)


@triton.jit
def load_matrix_apart(
    pointer, number, row, rows, column, columns, live, REAL: tl.constexpr
):  # fmt: skip
    """Load a matrix as ``load_matrix`` does, inside a loop of one iteration (none without rows);
    else Triton would convert it to the layout of a product's operand before it is rounded."""
    found = tl.zeros((column.shape[0], row.shape[0]), REAL)
    for _ in tl.range(0, tl.minimum(live, 1), num_stages=1):
        found = load_matrix(pointer, number, row, rows, column, columns, REAL)
    return found


@triton.jit
def store_matrix(pointer, number, row, rows, column, columns, value):
    """Store the matrix [rows, columns] with this number, from [columns, rows]."""
    place = pointer + (number * rows * columns + (row[None, :] * columns + column[:, None]))
    full_rows: tl.constexpr = (rows // row.shape[0]) * row.shape[0] == rows
    full_columns: tl.constexpr = (columns // column.shape[0]) * column.shape[0] == columns
    if full_rows and full_columns:
        tl.store(place, value)
    else:
        there = (row < rows)[None, :] & (column < columns)[:, None]
        tl.store(place, value, mask=there)


@triton.jit
def load_vector(pointer, number, row, rows, REAL: tl.constexpr):
    """Load the vector [rows] with this number."""
    return tl.load(pointer + number * rows + row, mask=row < rows, other=0.0).to(REAL)


@triton.jit
def store_vector(pointer, number, row, rows, value):
    """Store the vector [rows] with this number."""
    tl.store(pointer + number * rows + row, value, mask=row < rows)


@triton.jit
def load_number(pointer, number, REAL: tl.constexpr):
    """Load the single number at this place."""
    return tl.load(pointer + number).to(REAL)


@triton.jit
def store_number(pointer, number, value):
    """Store a single number at this place."""
    tl.store(pointer + number, value)


# -- windows: entries stored once a token, c − 1 of them before the first ---------------------


@triton.jit
def load_band(pointer, origin, stride, t, live, s, WIDTH: tl.constexpr, REAL: tl.constexpr):
    """Load row t's weights [c] from source t on, zero elsewhere: [C, S]."""
    slot = s[None, :] - t[:, None]
    there = (t < live)[:, None] & (slot >= 0) & (slot < WIDTH)
    place = (origin + t * stride)[:, None] * WIDTH + slot
    return tl.load(pointer + place, mask=there, other=0.0).to(REAL)


@triton.jit
def store_band(pointer, origin, stride, t, live, s, WIDTH: tl.constexpr, value):
    """Store the weights [c] of the rows that are there, from their band."""
    slot = s[None, :] - t[:, None]
    there = (t < live)[:, None] & (slot >= 0) & (slot < WIDTH)
    place = (origin + t * stride)[:, None] * WIDTH + slot
    tl.store(pointer + place, value, mask=there)


@triton.jit
def load_weights(pointer, origin, stride, s, live, WIDTH: tl.constexpr, REAL: tl.constexpr):
    """Load all rows' weights [c] one after another, zero beyond those that are there: [S]."""
    place = (origin + s // WIDTH * stride) * WIDTH + s % WIDTH
    return tl.load(pointer + place, mask=s < live, other=0.0).to(REAL)


@triton.jit
def store_weights(pointer, origin, stride, s, live, WIDTH: tl.constexpr, value):
    """Store the weights [c] that are there, of all rows one after another."""
    place = (origin + s // WIDTH * stride) * WIDTH + s % WIDTH
    tl.store(pointer + place, value, mask=s < live)


@triton.jit
def load_slots(
    pointer, origin, stride, s, live, WIDTH: tl.constexpr, channel, width, REAL: tl.constexpr
):
    """Load all tokens' windows one after another, zero beyond those that are there: [S, BW]."""
    place = (origin + (s // WIDTH + s % WIDTH) * stride)[:, None] * width + channel[None, :]
    there = (s < live)[:, None] & (channel < width)[None, :]
    return tl.load(pointer + place, mask=there, other=0.0).to(REAL)


@triton.jit
def add_slots(pointer, origin, stride, s, live, WIDTH: tl.constexpr, channel, width, value):
    """Add to every token's window, one slot of all windows after another: slots share tokens."""
    place = (origin + (s // WIDTH + s % WIDTH) * stride)[:, None] * width + channel[None, :]
    there = (s < live)[:, None] & (channel < width)[None, :]
    for slot in range(WIDTH):
        own = there & (s % WIDTH == slot)[:, None]
        tl.debug_barrier()  # what was added before must stand there
        before = tl.load(pointer + place, mask=own, other=0.0)
        tl.store(pointer + place, before + value, mask=own)


@triton.jit
def add_rows(pointer, origin, stride, t, live, channel, width, value):
    """Add to rows of channels that are there, which the next chunk has written too."""
    place = (origin + t * stride)[:, None] * width + channel[None, :]
    there = (t < live)[:, None] & (channel < width)[None, :]
    tl.debug_barrier()  # what was added before must stand there
    before = tl.load(pointer + place, mask=there, other=0.0)
    tl.store(pointer + place, before + value, mask=there)


@triton.jit
def load_window(pointer, origin, stride, slot, slots, channel, width, REAL: tl.constexpr):
    """Load one token's window, zero beyond its slots: [BR, BW]."""
    place = (origin + slot * stride)[:, None] * width + channel[None, :]
    there = (slot < slots)[:, None] & (channel < width)[None, :]
    return tl.load(pointer + place, mask=there, other=0.0).to(REAL)


@triton.jit
def add_window(pointer, origin, stride, slot, slots, channel, width, value):
    """Add to one token's window, to which the next token has added."""
    add_rows(pointer, origin, stride, slot, slots, channel, width, value)


# -- kept pairs of which the last are a window's ----------------------------------------------


@triton.jit
def load_tailed(pointer, place, first, s, live, channel, width, REAL: tl.constexpr):
    """Load entries from ``first`` on, zero before a memory's own and beyond the last: [S, BW]."""
    there = ((s < live) & (first + s >= 0))[:, None] & (channel < width)[None, :]
    at = ((first + s) * width)[:, None] + channel[None, :]
    return tl.load(pointer + place * width + at, mask=there, other=0.0).to(REAL)


@triton.jit
def grow_rows(pointer, place, first, s, live, channel, width, TAIL: tl.constexpr, value):
    """Add the first rows to the last ``TAIL`` entries, which begin at ``first``, and put the others
    behind them; what lies before a memory's own entries is left out."""
    there = ((s < live) & (first + s >= 0))[:, None] & (channel < width)[None, :]
    at = pointer + place * width + ((first + s) * width)[:, None] + channel[None, :]
    old = tl.load(at, mask=there & (s < TAIL)[:, None], other=0.0)
    tl.store(at, old + value, mask=there)
