"""How a node of an expression decides between branches: by the signs of its edges.

An edge is an expression that is zero where another changes branch: the difference of the two sides
of a condition, or the argument of an absolute value or a sign.
"""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import sympy as sp
from sympy.core.relational import Relational

ANY, BESIDE = frozenset((-1, 0, 1)), frozenset((-1, 1))
"""Every sign, and those beside an edge."""

_EITHER_SIDE = (sp.Abs, sp.sign, sp.Heaviside)
_SPLIT = (sp.Piecewise, sp.Max, sp.Min, *_EITHER_SIDE)
_HOLDS: dict[Any, frozenset[int]] = {
    sp.Gt: frozenset((1,)), sp.Ge: frozenset((0, 1)), sp.Lt: frozenset((-1,)),
    sp.Le: frozenset((-1, 0)), sp.Eq: frozenset((0,)), sp.Ne: frozenset((-1, 1)),
}  # fmt: skip
"""The signs of left less right for which a comparison holds."""

Signs = Callable[[Any], frozenset[int]]
"""The signs that an edge can have."""
Way = tuple[int, tuple[Any, ...]]
"""A branch by its number, and what is evaluated there."""


def splits(expression: Any) -> bool:
    """Return whether an expression has branches."""
    return bool(expression.has(*_SPLIT)) or any(map(_is_even_root, expression.atoms(sp.Pow)))


def is_split(node: Any) -> bool:
    """Return whether a node decides between branches itself."""
    return isinstance(node, _SPLIT) or _is_even_root(node)


def _is_even_root(node: Any) -> bool:
    """Return whether a node is like √u², which is |u|."""
    return (
        isinstance(node, sp.Pow) and isinstance(node.base, sp.Pow)
        and bool(node.base.exp.is_even) and not node.exp.is_integer
    )  # fmt: skip


def edges_of(node: Any) -> list[Any]:
    """Return the edges that a node decides by."""
    if isinstance(node, sp.Piecewise):
        return [r.lhs - r.rhs for r in comparisons(node)]
    if isinstance(node, sp.Max | sp.Min):
        return [a - b for a, b in permutations(node.args, 2)]
    return [_inside(node)]


def comparisons(node: Any) -> set[Any]:
    """Return the comparisons that a node decides by."""
    if not isinstance(node, sp.Piecewise):
        return set()
    return {r for _, condition in node.args for r in condition.atoms(Relational)}


def _inside(node: Any) -> Any:
    return node.base.base if isinstance(node, sp.Pow) else node.args[0]


def ways(node: Any, signs: Signs) -> Iterator[Way]:
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


def implications(node: Any, i: int) -> Iterator[tuple[Any, frozenset[int]]]:
    """Yield each edge of a node with the signs that it has where the node takes branch i."""
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
        yield condition.lhs - condition.rhs, held if holds else ANY - held
    elif isinstance(condition, sp.And if holds else sp.Or):
        for part in condition.args:
            yield from _implied(part, holds=holds)
    elif isinstance(condition, sp.Not):
        yield from _implied(condition.args[0], holds=not holds)


def plain(edge: Any) -> tuple[Any, int]:
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
