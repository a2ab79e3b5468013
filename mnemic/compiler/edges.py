"""The edges of expressions, and points on every side of them.

No point lies on an edge itself, unless a condition tests for equality or the edge contains whole
numbers.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.decisions import comparisons, edges_of, is_split, plain, splits
from mnemic.compiler.drawn_points import WHOLE, Point, Reach, ends, ladder, ordered

MIXED = 4
"""Points from each base at which every symbol is moved, of more symbols than ``TOGETHER``."""
TOGETHER = 3
"""Symbols of which all sides are taken with all sides of the others."""
HALVINGS = 40
"""Steps of a search for an edge between two numbers."""
SHORT = 80
"""Binary digits of a number at which an edge is exactly zero, and no rounding decides."""


class Edges:
    """The edges of expressions in a few symbols; points may also lie on those in ``met``."""

    def __init__(self, expressions: Sequence[Any], symbols: Sequence[Any], reach: Reach) -> None:
        self.symbols, self.reach = list(symbols), reach
        nodes = {n for e in expressions for n in sp.preorder_traversal(e) if is_split(n)}
        self.all = sorted({e for n in nodes for e in edges_of(n)}, key=sp.default_sort_key)
        asked = {
            r.lhs - r.rhs for n in nodes for r in comparisons(n) if isinstance(r, sp.Eq | sp.Ne)
        }
        whole = {e for e in self.all if e.free_symbols & {*WHOLE}}
        self.met = {plain(e)[0] for e in asked | whole}
        modules = [{"round": mpmath.nint}, "mpmath"]
        self._values = sp.lambdify(self.symbols, self.all, modules, dummify=True, cse=True)
        self._moving = [i for i, s in enumerate(self.symbols) if any(e.has(s) for e in self.all)]
        self._straight = {(e, s): is_straight(e, s) for e in self.all for s in e.free_symbols}

    def signs(self, at: Point) -> dict[Any, frozenset[int]] | None:
        """Return the sign of each edge at a point; None where one has no number."""
        values = self._at(at)
        if values is None:
            return None
        return {e: _sign(x) for e, x in zip(self.all, values, strict=True)}

    def beside(self, at: Point) -> bool:
        """Return whether a point lies on no edge but those in ``met``."""
        told = (self.signs(at) or {}).items()
        return all(signs != {0} or plain(edge)[0] in self.met for edge, signs in told)

    def points(self, bases: Iterable[Point], seed: int = 0) -> Iterator[Point]:
        """Yield points on all sides of the edges, and on edges, near each base."""
        source = random.Random(seed)
        for base in bases:
            for i in self._moving:
                yield from (self._moved(base, i, x) for x in self._sides(i, base))
            order = source.sample(self._moving, len(self._moving))
            if 1 < len(order) <= TOGETHER:
                yield from self._together(base, order)
            elif len(order) > TOGETHER:
                yield from (self._mixed(base, source) for _ in range(MIXED))

    def _together(self, base: Point, order: Sequence[int]) -> Iterator[Point]:
        """Yield points at every combination of the sides of edges that the symbols can take."""
        if not order:
            yield base
            return
        i, *rest = order
        for x in (base[i], *self._sides(i, base)):
            yield from self._together(self._moved(base, i, x), rest)

    def _mixed(self, base: Point, source: random.Random) -> Point:
        at = list(base)
        for i in source.sample(self._moving, len(self._moving)):
            at = self._moved(at, i, source.choice([at[i], *self._sides(i, at)]))
        return at

    def _moved(self, base: Point, i: int, x: Any) -> Point:
        return ordered(self.symbols, [*base[:i], mpmath.mpf(x), *base[i + 1 :]])

    def _at(self, at: Point) -> list[Any] | None:
        try:
            return [mpmath.mpmathify(x) for x in self._values(*at)]
        except (ArithmeticError, ValueError, TypeError):
            return None

    def _sides(self, i: int, base: Point) -> list[Any]:
        """Return numbers for a symbol on each side of each edge, the rest being as in a base."""
        symbol = self.symbols[i]
        low, high = ends(symbol, self.reach)
        found = [(x, e) for x, e in self.roots(i, base) if low < x < high]
        roots = sorted({x for x, _ in found})
        if symbol in WHOLE:
            near = {int(mpmath.floor(x)) + step for x in roots for step in (-1, 0, 1, 2)}
            return sorted(x for x in near if x > low)
        if not roots:
            return []
        first = roots[0] - (1 + abs(roots[0])) if low == -math.inf else low
        last = roots[-1] + (1 + abs(roots[-1])) if high == math.inf else high
        between = [a + (b - a) * 499 / 1024 for a, b in pairwise((first, *roots, last))]
        return [*between, *(x for x, e in found if plain(e)[0] in self.met and _is_short(x))]

    def roots(self, i: int, base: Point) -> Iterator[tuple[Any, Any]]:
        """Yield the numbers of one symbol at which edges are zero, the rest being as in a base,
        each with the edge."""
        symbol, edges = self.symbols[i], [e for e in self.all if e.has(self.symbols[i])]
        places = {e: j for j, e in enumerate(self.all)}
        at = {x: self._at([*base[:i], mpmath.mpf(x), *base[i + 1 :]]) for x in (0, 1)}
        straight = [e for e in edges if self._straight[e, symbol]]
        if at[0] is not None and at[1] is not None:
            for e in straight:
                zero, one = at[0][places[e]], at[1][places[e]]
                if zero != one:
                    yield mpmath.re(zero / (zero - one)), e
        if len(straight) == len(edges):
            return
        rungs = [(x, self._at([*base[:i], mpmath.mpf(x), *base[i + 1 :]]))
                 for x in ladder(symbol, self.reach)]  # fmt: skip
        for e in (e for e in edges if e not in straight):
            j = places[e]
            known = [(mpmath.mpf(x), _sign(found[j])) for x, found in rungs if found is not None]
            for (a, one), (b, above) in pairwise((x, s) for x, s in known if s):
                if one != above:
                    yield _edge_between(a, b, partial(self._side, i, j, base), one), e

    def _side(self, i: int, j: int, base: Point, x: Any) -> frozenset[int]:
        found = self._at([*base[:i], x, *base[i + 1 :]])
        return frozenset() if found is None else _sign(found[j])


def is_straight(edge: Any, symbol: Any) -> bool:
    """Return whether an edge is linear in a symbol; what is rounded is not, for all its slope."""
    bends = splits(edge) or edge.has(sym.round)
    return not bends and not sp.diff(edge, symbol).has(symbol)


def _edge_between(
    low: Any, high: Any, side: Callable[[Any], frozenset[int]], first: frozenset[int]
) -> Any:
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if side(middle) == first else (low, middle)
    return (low + high) / 2


def _sign(value: Any) -> frozenset[int]:
    if mpmath.im(value) != 0 or mpmath.isnan(value):
        return frozenset()
    return frozenset(((value > 0) - (value < 0),))


def _is_short(x: Any) -> bool:
    """Return whether a number has few binary digits."""
    return bool(mpmath.mpf(x).man.bit_length() <= SHORT)
