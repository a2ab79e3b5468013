"""The branches of expressions that decide by a comparison, and points that visit every one.

Cases, maxima, absolute values and signs change where an expression, an edge, is zero. On an edge
itself nothing is looked at, unless a condition asks for equality or whole numbers stand in it.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise, permutations
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy as sp
from sympy.core.relational import Relational

from mnemic.compiler.drawn_points import WHOLE, Point, Reach, ends, ladder, ordered

MIXED = 4
"""Points from each base at which every symbol is moved."""
HALVINGS = 40
"""Steps of a search for an edge between two numbers."""
SHORT = 80
"""Binary digits of a number at which an edge is exactly zero, and no rounding decides."""

_EITHER_SIDE = (sp.Abs, sp.sign, sp.Heaviside)
_SPLIT = (sp.Piecewise, sp.Max, sp.Min, *_EITHER_SIDE)
_ANY, _BESIDE = frozenset((-1, 0, 1)), frozenset((-1, 1))
_HOLDS: dict[Any, frozenset[int]] = {
    sp.Gt: frozenset((1,)), sp.Ge: frozenset((0, 1)), sp.Lt: frozenset((-1,)),
    sp.Le: frozenset((-1, 0)), sp.Eq: frozenset((0,)), sp.Ne: frozenset((-1, 1)),
}  # fmt: skip
"""The signs of left less right for which a comparison holds."""

Signs = Callable[[Any], frozenset[int]]
"""The signs that an edge can have."""
Known = dict[Any, frozenset[int]]
"""Signs that edges have by what was decided before."""
Way = tuple[int, tuple[Any, ...]]
"""A branch by its number, and what is evaluated there."""


class Branches:
    """The branches of expressions: which there are, and which of them no point has visited."""

    def __init__(self, expressions: Sequence[Any], symbols: Sequence[Any], reach: Reach) -> None:
        self.expressions, self.symbols, self.reach = expressions, list(symbols), reach
        nodes = {n for e in expressions for n in sp.preorder_traversal(e) if _splits(n)}
        self.edges = sorted({e for n in nodes for e in _edges(n)}, key=sp.default_sort_key)
        asked = {r.lhs - r.rhs for n in nodes for r in _compared(n) if isinstance(r, sp.Eq | sp.Ne)}
        whole = {e for e in self.edges if e.free_symbols & {*WHOLE}}
        self._met = {_plain(e)[0] for e in asked | whole}
        self.left = {pair for e in expressions for pair in self._reached(e, {}, set())}
        self._values = sp.lambdify(self.symbols, self.edges, "mpmath", dummify=True, cse=True)
        self._moving = [i for i, s in enumerate(self.symbols) if any(e.has(s) for e in self.edges)]
        self._straight = {(e, s): _straight(e, s) for e in self.edges for s in e.free_symbols}

    def _reached(
        self, node: Any, known: Known, seen: set[Any]
    ) -> Iterator[tuple[Any, int]]:  # fmt: skip
        """Yield the branches below a node that may be taken where edges have ``known`` signs."""
        key = node, frozenset(known.items())
        if key in seen or not node.args:
            return
        seen.add(key)
        if not _splits(node):
            for part in node.args:
                yield from self._reached(part, known, seen)
            return

        def signs(edge: Any) -> frozenset[int]:
            plain, turn = _plain(edge)
            told = known.get(plain, _ANY if plain in self._met else _BESIDE)
            return self._possible(edge) & frozenset(turn * s for s in told)

        for i, below in _ways(node, signs):
            here = dict(known)
            for edge, allowed in _learned(node, i):
                plain, turn = _plain(edge)
                left = frozenset(turn * s for s in allowed & signs(edge))
                here[plain] = here.get(plain, _ANY) & left
            if all(here.values()):
                yield node, i
                for part in below:
                    yield from self._reached(part, here, seen)

    def _possible(self, edge: Any) -> frozenset[int]:
        """Return the signs that an edge can have, as far as is known."""
        for known, signs in (
            (edge.is_positive, (1,)), (edge.is_negative, (-1,)),
            (edge.is_nonnegative, (0, 1)), (edge.is_nonpositive, (-1, 0)),
        ):  # fmt: skip
            if known:
                return frozenset(signs)
        if len(edge.free_symbols) == 1:
            (symbol,) = edge.free_symbols
            if _straight(edge, symbol):
                low, high = ends(symbol, self.reach)
                root = float(-edge.subs(symbol, 0) / sp.diff(edge, symbol))
                rises = 1 if sp.diff(edge, symbol) > 0 else -1
                if not low < root < high:
                    return frozenset((rises if root <= low else -rises,))
        return _ANY

    def visit(self, at: Point) -> None:
        """Take off the list the branches that expressions take at a point."""
        values = self._at(at)
        if values is None:
            return
        signs = {e: _sign(x) for e, x in zip(self.edges, values, strict=True)}
        front, seen = [*self.expressions], set()
        while front:
            node = front.pop()
            if node in seen:
                continue
            seen.add(node)
            if not _splits(node):
                front += node.args
                continue
            for i, below in _ways(node, signs.__getitem__):
                self.left.discard((node, i))
                front += below

    def points(self, bases: Iterable[Point], seed: int = 0) -> Iterator[Point]:
        """Yield points on all sides of the edges, and on edges, near each base."""
        source = random.Random(seed)
        for base in bases:
            for i in self._moving:
                yield from (self._moved(base, i, x) for x in self._sides(i, base))
            for _ in range(MIXED):
                at = list(base)
                for i in source.sample(self._moving, len(self._moving)):
                    at = self._moved(at, i, source.choice([at[i], *self._sides(i, at)]))
                yield at

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
        found = [(x, e) for x, e in self._roots(i, base) if low < x < high]
        roots = sorted({x for x, _ in found})
        if symbol in WHOLE:
            near = {int(mpmath.floor(x)) + step for x in roots for step in (-1, 0, 1, 2)}
            return sorted(x for x in near if x > low)
        if not roots:
            return []
        first = roots[0] - (1 + abs(roots[0])) if low == -math.inf else low
        last = roots[-1] + (1 + abs(roots[-1])) if high == math.inf else high
        between = [a + (b - a) * 499 / 1024 for a, b in pairwise((first, *roots, last))]
        return [*between, *(x for x, e in found if _plain(e)[0] in self._met and _is_short(x))]

    def _roots(self, i: int, base: Point) -> Iterator[tuple[Any, Any]]:
        """Yield the numbers of one symbol at which edges are zero, the rest being as in a base,
        each with the edge."""
        symbol, edges = self.symbols[i], [e for e in self.edges if e.has(self.symbols[i])]
        places = {e: j for j, e in enumerate(self.edges)}
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
                    yield self._edge_between(a, b, partial(self._side, i, j, base), one), e

    def _side(self, i: int, j: int, base: Point, x: Any) -> frozenset[int]:
        found = self._at([*base[:i], x, *base[i + 1 :]])
        return frozenset() if found is None else _sign(found[j])

    @staticmethod
    def _edge_between(
        low: Any, high: Any, side: Callable[[Any], frozenset[int]], first: frozenset[int]
    ) -> Any:
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if side(middle) == first else (low, middle)
        return (low + high) / 2


def splits(expression: Any) -> bool:
    """Return whether an expression has branches."""
    return bool(expression.has(*_SPLIT)) or any(map(_is_even_root, expression.atoms(sp.Pow)))


def _splits(node: Any) -> bool:
    return isinstance(node, _SPLIT) or _is_even_root(node)


def _is_even_root(node: Any) -> bool:
    """Return whether a node is like √u², which is |u|."""
    return (
        isinstance(node, sp.Pow) and isinstance(node.base, sp.Pow)
        and bool(node.base.exp.is_even) and not node.exp.is_integer
    )  # fmt: skip


def _edges(node: Any) -> list[Any]:
    if isinstance(node, sp.Piecewise):
        return [r.lhs - r.rhs for r in _compared(node)]
    if isinstance(node, sp.Max | sp.Min):
        return [a - b for a, b in permutations(node.args, 2)]
    return [_inside(node)]


def _compared(node: Any) -> set[Any]:
    """Return the comparisons that a node decides by."""
    if not isinstance(node, sp.Piecewise):
        return set()
    return {r for _, condition in node.args for r in condition.atoms(Relational)}


def _inside(node: Any) -> Any:
    return node.base.base if isinstance(node, sp.Pow) else node.args[0]


def _ways(node: Any, signs: Signs) -> Iterator[Way]:
    """Yield the branches that a node can take for signs of its edges."""
    if isinstance(node, sp.Piecewise):
        tested: tuple[Any, ...] = ()
        for i, (value, condition) in enumerate(node.args):
            truths = _truths(condition, signs)
            tested += tuple(a for r in condition.atoms(Relational) for a in r.args)
            if True in truths:
                yield i, (value, *tested)
            if False not in truths:
                return
    elif isinstance(node, sp.Max | sp.Min):
        wins = 1 if isinstance(node, sp.Max) else -1
        for i, one in enumerate(node.args):
            if all(wins in signs(one - other) for other in node.args if other != one):
                yield i, (one,)
    else:
        yield from ((s, (_inside(node),)) for s in (-1, 1) if s in signs(_inside(node)))


def _learned(node: Any, i: int) -> Iterator[tuple[Any, frozenset[int]]]:
    """Yield edges with the signs that they have where a node takes a branch."""
    if isinstance(node, sp.Piecewise):
        for before in node.args[:i]:
            yield from _implied(before[1], holds=False)
        yield from _implied(node.args[i][1], holds=True)
    elif isinstance(node, sp.Max | sp.Min):
        wins = frozenset((1 if isinstance(node, sp.Max) else -1,))
        one = node.args[i]
        yield from ((one - other, wins) for other in node.args if other != one)
    else:
        yield _inside(node), frozenset((i,))


def _implied(condition: Any, *, holds: bool) -> Iterator[tuple[Any, frozenset[int]]]:
    """Yield edges with the signs that they have where a condition holds, or does not."""
    if isinstance(condition, Relational):
        held = _HOLDS[type(condition)]
        yield condition.lhs - condition.rhs, held if holds else _ANY - held
    elif isinstance(condition, sp.And if holds else sp.Or):
        for part in condition.args:
            yield from _implied(part, holds=holds)
    elif isinstance(condition, sp.Not):
        yield from _implied(condition.args[0], holds=not holds)


def _plain(edge: Any) -> tuple[Any, int]:
    """Return an edge without its number in front and with one sign, and that sign."""
    number, rest = sp.expand(edge).as_coeff_Mul()
    turn = -1 if number.is_negative else 1
    if rest.could_extract_minus_sign():
        return -rest, -turn
    return rest, turn


def _truths(condition: Any, signs: Signs) -> frozenset[bool]:
    """Return what a condition can be."""
    if isinstance(condition, sp.And | sp.Or):
        whole = isinstance(condition, sp.And)
        parts = [_truths(part, signs) for part in condition.args]
        found = {whole} if all(whole in part for part in parts) else set()
        return frozenset(found | ({not whole} if any(whole not in p for p in parts) else set()))
    if isinstance(condition, sp.Not):
        return frozenset(not truth for truth in _truths(condition.args[0], signs))
    if isinstance(condition, Relational):
        held = _HOLDS[type(condition)]
        return frozenset(s in held for s in signs(condition.lhs - condition.rhs))
    return frozenset((bool(condition),) if condition in (sp.true, sp.false) else (True, False))


def _straight(edge: Any, symbol: Any) -> bool:
    """Return whether an edge is linear in a symbol."""
    return not splits(edge) and not sp.diff(edge, symbol).has(symbol)


def _sign(value: Any) -> frozenset[int]:
    if mpmath.im(value) != 0 or mpmath.isnan(value):
        return frozenset()
    return frozenset(((value > 0) - (value < 0),))


def _is_short(x: Any) -> bool:
    """Return whether a number has few binary digits."""
    return bool(mpmath.mpf(x).man.bit_length() <= SHORT)
