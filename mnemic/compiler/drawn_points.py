"""Random points at which expressions are compared: within a symbol's range, at all magnitudes."""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import mpmath  # type: ignore[import-untyped]

from mnemic.compiler import symbols as sym

Point = list[Any]
"""A number for each of a few symbols, in their order."""
Reach = Mapping[Any, tuple[float, float]]
"""Between which ends symbols lie; others have all numbers of their sign."""

WHOLE = (sym.HEAD, sym.HEADS, sym.TIME)
"""Symbols that are whole numbers."""
SIZES = (1e-3, 0.04, 0.6, 3.0, 25.0, 300.0)
"""Magnitudes of symbols without ends."""
SPREAD = (1e-9, 1e-6, 1e-3, 30.0, 300.0, 4e3, 5e4, 1e6)
"""Magnitudes at each of which every symbol is looked at alone."""
FEW = 12
"""Whole numbers up to here are drawn at first."""


def ends(symbol: Any, reach: Reach) -> tuple[float, float]:
    """Return the two ends of the open interval in which a symbol lies."""
    if symbol in reach:
        return reach[symbol]
    if symbol in WHOLE:
        return (-0.5 if symbol.is_nonnegative and not symbol.is_positive else 0.5, math.inf)
    return (0.0 if symbol.is_nonnegative else -math.inf, math.inf)


def sample(symbols: Iterable[Any], seed: int, reach: Reach | None = None) -> Point:
    """Draw values of four digits: within a range that ends, else below one in size.

    Places and heads are small whole numbers.
    """
    source = random.Random(seed)
    listed, found = list(symbols), []
    for symbol in listed:
        low, high = ends(symbol, reach or {})
        size = mpmath.mpf(source.randint(500, 9500)) / 10007
        if symbol in WHOLE:
            found.append(mpmath.mpf(1 + int(size * FEW)))
        elif math.isfinite(high - low):
            found.append(low + size * (high - low))
        else:
            found.append(size if low == 0 else size * source.choice((1, -1)))
    return ordered(listed, found)


def sample_far(symbols: Sequence[Any], seed: int, reach: Reach) -> Point:
    """Draw values of any magnitude that few binary digits represent exactly."""
    source = random.Random(f"far {seed}")
    found = [_far(symbol, source, reach) for symbol in symbols]
    return ordered(symbols, found)


def _far(symbol: Any, source: random.Random, reach: Reach) -> Any:
    low, high = ends(symbol, reach)
    part = mpmath.mpf(2 * source.randrange(200, 3900) + 1) / 8192
    if symbol in WHOLE:
        return mpmath.mpf(1 + int(part * source.choice((3, 60, 2000))))
    if math.isfinite(high - low):
        near = source.choice((1, 1, 2.0**-6))
        return source.choice((low + near * part * (high - low), high - near * part * (high - low)))
    size = part * 2 ** round(math.log2(source.choice(SIZES)))
    if low == -math.inf:
        return size * source.choice((1, -1))
    return low + size


def spread(symbols: Sequence[Any], base: Point, reach: Reach) -> Iterator[Point]:
    """Yield points at which one symbol after the other goes to each end of its range and, where it
    may, to zero, the rest being as in a base."""
    for i, symbol in enumerate(symbols):
        low, high = ends(symbol, reach)
        sides = [size * sign for size in SPREAD for sign in (1, -1)]
        if math.isfinite(high - low):
            near = [size * (high - low) for size in SPREAD if size < 1]
            sides += [*(low + x for x in near), *(high - x for x in near)]
        if symbol in WHOLE:
            sides = [round(x) for x in sides if x >= 1]
        for x in sides:
            if low < x < high:
                yield ordered(symbols, [*base[:i], mpmath.mpf(x), *base[i + 1 :]])


def ordered(symbols: Sequence[Any], at: Point) -> Point:
    """Return a point with more heads than the index of any."""
    if sym.HEAD in symbols and sym.HEADS in symbols:
        head, heads = symbols.index(sym.HEAD), symbols.index(sym.HEADS)
        at[heads] = max(at[heads], at[head] + 1)
    return at


def ladder(symbol: Any, reach: Reach) -> list[Any]:
    """Return numbers over all of a symbol's range, in order."""
    low, high = ends(symbol, reach)
    if math.isfinite(high - low):
        parts = (1e-6, 1e-3, 0.02, *(0.1 * i for i in range(1, 10)), 0.98, 1 - 1e-3, 1 - 1e-6)
        return [low + part * (high - low) for part in parts]
    sizes = [10.0 ** (i / 2) for i in range(-12, 13)]
    found = [*(-x for x in reversed(sizes)), *sizes]
    return [x for x in found if low < x < high]
