"""What a layer's token needs beside its rule: the convolution's taps, positions, the new window."""

import math

import triton
import triton.language as tl

LOG_BASE = tl.constexpr(math.log(10_000.0))
"""log of the longest wavelength of a position, over 2π."""


@triton.jit
def load_tap(pointer, first, tap, TAPS: tl.constexpr, channel, width, REAL: tl.constexpr):
    """Load one tap of the convolution's weights [channels, taps], from a first channel on."""
    place = (first + channel) * TAPS + tap
    return tl.load(pointer + place, mask=channel < width, other=0.0).to(REAL)


@triton.jit
def store_once(pointer, number, row, rows, value):
    """Store the vector [rows] with this number, by the first program of those that share it."""
    own = tl.where(tl.program_id(1) == 0, rows, 0)
    tl.store(pointer + number * rows + row, value, mask=row < own)


@triton.jit
def rotated(x, partner, position, WIDTH: tl.constexpr):
    """Turn channel pairs (i, i + d/2) of x [d] by position · 10000^(−2i/d).

    ``partner`` has the channels half a vector further, the second half's the first's.
    """
    half: tl.constexpr = WIDTH // 2
    channel = tl.arange(0, x.shape[0])
    place = (channel % half).to(x.dtype)
    angle = position * tl.exp(place * (-LOG_BASE / half))
    side = tl.where(channel < half, -1.0, 1.0).to(x.dtype)
    found = x * tl.cos(angle) + side * partner * tl.sin(angle)
    return tl.where(channel < WIDTH, found, 0.0)


# -- windows of tokens: the last c − 1 are carried, the token's own comes last ------------------


@triton.jit
def load_tail(pointer, number, slot, SLOTS: tl.constexpr, channel, width, REAL: tl.constexpr):
    """Load the carried rows [c − 1, width] of this memory, zero beyond them: [BR, BW]."""
    place = (number * (SLOTS - 1) + slot)[:, None] * width + channel[None, :]
    there = (slot < SLOTS - 1)[:, None] & (channel < width)[None, :]
    return tl.load(pointer + place, mask=there, other=0.0).to(REAL)


@triton.jit
def load_tail_numbers(pointer, number, slot, SLOTS: tl.constexpr, REAL: tl.constexpr):
    """Load the carried numbers [c − 1] of this memory, zero beyond them: [BR]."""
    place = pointer + number * (SLOTS - 1) + slot
    return tl.load(place, mask=slot < SLOTS - 1, other=0.0).to(REAL)


@triton.jit
def appended(tail, now, SLOTS: tl.constexpr):
    """Put the token's own number behind the carried ones: a window."""
    return tl.where(tl.arange(0, tail.shape[0]) == SLOTS - 1, now, tail)


@triton.jit
def appended_row(tail, now, SLOTS: tl.constexpr):
    """Put the token's own row behind the carried ones: a window."""
    last = tl.arange(0, tail.shape[0]) == SLOTS - 1
    return tl.where(last[:, None], now[None, :], tail)


@triton.jit
def store_tail(pointer, number, slot, SLOTS: tl.constexpr, channel, width, value):
    """Store all of a window but its oldest row, as what is carried on."""
    place = (number * (SLOTS - 1) + slot - 1)[:, None] * width + channel[None, :]
    there = ((slot > 0) & (slot < SLOTS))[:, None] & (channel < width)[None, :]
    tl.store(pointer + place, value, mask=there)


@triton.jit
def store_tail_numbers(pointer, number, slot, SLOTS: tl.constexpr, value):
    """Store all of a window but its oldest number, as what is carried on."""
    place = pointer + number * (SLOTS - 1) + slot - 1
    tl.store(place, value, mask=(slot > 0) & (slot < SLOTS))
