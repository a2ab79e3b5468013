"""The branches of piecewise expressions, and which of them sample points have visited.

Cases, maxima, absolute values and signs change branch where some expression, called an edge, is 0.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import sympy as sp

from mnemic.compiler.decisions import ANY, BESIDE, implications, is_split, plain, ways
from mnemic.compiler.drawn_points import Point, ends
from mnemic.compiler.edges import Edges, is_straight

Known = dict[Any, frozenset[int]]
"""Signs that edges have by what was decided before."""


class Branches:
    """The branches of expressions; ``left`` are those that no point has visited."""

    def __init__(self, expressions: Sequence[Any], edges: Edges) -> None:
        self.expressions, self.edges = expressions, edges
        self.left = {pair for e in expressions for pair in self._reached(e, {}, set())}

    def visit(self, at: Point) -> None:
        """Remove from ``left`` the branches that the expressions take at a point."""
        signs = self.edges.signs(at)
        if signs is None:
            return
        front, seen = [*self.expressions], set()
        while front:
            node = front.pop()
            if node in seen:
                continue
            seen.add(node)
            if not is_split(node):
                front += node.args
                continue
            for i, below in ways(node, signs.__getitem__):
                self.left.discard((node, i))
                front += below

    def _reached(
        self, node: Any, known: Known, seen: set[Any]
    ) -> Iterator[tuple[Any, int]]:  # fmt: skip
        """Yield the branches below a node that may be taken where edges have ``known`` signs."""
        key = node, frozenset(known.items())
        if key in seen or not node.args:
            return
        seen.add(key)
        if not is_split(node):
            for part in node.args:
                yield from self._reached(part, known, seen)
            return

        def signs(edge: Any) -> frozenset[int]:
            bare, turn = plain(edge)
            told = known.get(bare, ANY if bare in self.edges.met else BESIDE)
            return self._possible(edge) & frozenset(turn * s for s in told)

        for i, below in ways(node, signs):
            here = dict(known)
            for edge, allowed in implications(node, i):
                bare, turn = plain(edge)
                left = frozenset(turn * s for s in allowed & signs(edge))
                here[bare] = here.get(bare, ANY) & left
            if all(here.values()) and self._meet(here):
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
        found = _root(edge)
        if found is not None:
            symbol, root, rises = found
            low, high = ends(symbol, self.edges.reach)
            if not low < root < high:
                return frozenset((rises if root <= low else -rises,))
        return ANY

    def _meet(self, known: Known) -> bool:
        """Return whether a number lies on the known sides of all straight edges of one symbol."""
        spans: dict[Any, tuple[float, float]] = {}
        for edge, signs in known.items():
            found = _root(edge) if 1 < len(signs | {0}) < len(ANY) else None
            if found is not None:
                symbol, root, rises = found
                low, high = spans.get(symbol, ends(symbol, self.edges.reach))
                above = rises in signs
                spans[symbol] = (max(low, root), high) if above else (low, min(high, root))
        return all(low <= high for low, high in spans.values())


@cache
def _root(edge: Any) -> tuple[Any, float, int] | None:
    """Return the symbol of an edge that is linear in its one symbol, the number at which it is
    zero, and 1 where it rises, −1 where it falls."""
    if len(edge.free_symbols) != 1:
        return None
    (symbol,) = edge.free_symbols
    if not is_straight(edge, symbol):
        return None
    slope = sp.diff(edge, symbol)
    return symbol, float(-edge.subs(symbol, 0) / slope), 1 if slope > 0 else -1
