"""Rows and memories between a device's memory and tiles."""

import triton
import triton.language as tl


@triton.jit
def load_rows(pointer, origin, stride, t, live, channel, width, REAL: tl.constexpr):
    """[C, BW]: rows of channels, zero beyond those that are there."""
    place = (t * stride * width)[:, None] + channel[None, :]  # of 32 bits: within a chunk
    there = (t < live)[:, None] & (channel < width)[None, :]
    return tl.load(pointer + origin * width + place, mask=there, other=0.0).to(REAL)


@triton.jit
def load_column(pointer, origin, stride, t, live, REAL: tl.constexpr):
    """[C]: a number a row; beyond the rows that are there the last one, which nothing reads."""
    return tl.load(pointer + origin + tl.minimum(t, live - 1) * stride).to(REAL)


@triton.jit
def load_logs(pointer, origin, stride, t, live, REAL: tl.constexpr):
    """[C]: logarithms, zero beyond the rows that are there."""
    return tl.load(pointer + origin + t * stride, mask=t < live, other=0.0).to(REAL)


@triton.jit
def store_rows(pointer, origin, stride, t, live, channel, width, value):
    """Rows of channels that are there."""
    place = (t * stride * width)[:, None] + channel[None, :]
    there = (t < live)[:, None] & (channel < width)[None, :]
    tl.store(pointer + origin * width + place, value, mask=there)


@triton.jit
def store_column(pointer, origin, stride, t, live, value):
    """A number a row."""
    tl.store(pointer + origin + t * stride, value, mask=t < live)


@triton.jit
def load_matrix(pointer, number, row, rows, column, columns, REAL: tl.constexpr):
    """[columns, rows] of the matrix [rows, columns] with this number."""
    place = row[None, :] * columns + column[:, None]
    there = (row < rows)[None, :] & (column < columns)[:, None]
    return tl.load(pointer + number * rows * columns + place, mask=there, other=0.0).to(REAL)


@triton.jit
def store_matrix(pointer, number, row, rows, column, columns, value):
    """The matrix [rows, columns] with this number, from [columns, rows]."""
    place = row[None, :] * columns + column[:, None]
    there = (row < rows)[None, :] & (column < columns)[:, None]
    tl.store(pointer + number * rows * columns + place, value, mask=there)


@triton.jit
def load_vector(pointer, number, row, rows, REAL: tl.constexpr):
    """The vector [rows] with this number."""
    return tl.load(pointer + number * rows + row, mask=row < rows, other=0.0).to(REAL)


@triton.jit
def store_vector(pointer, number, row, rows, value):
    """The vector [rows] with this number."""
    tl.store(pointer + number * rows + row, value, mask=row < rows)


@triton.jit
def load_number(pointer, number, REAL: tl.constexpr):
    """One number of each memory."""
    return tl.load(pointer + number).to(REAL)


@triton.jit
def store_number(pointer, number, value):
    """One number of each memory."""
    tl.store(pointer + number, value)
