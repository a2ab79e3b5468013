"""A layer's memory where it starts, in numbers: its matrices as they are drawn, and a pass through
its network, forward or backward, at a random unit key."""

import math
import random
from collections.abc import Callable, Iterable
from typing import Any, Final

from mnemic.compiler import symbols as sym
from mnemic.compiler.network import (
    FEATURES,
    ONE,
    RAW,
    Apply,
    Back,
    Map,
    Matrix,
    Node,
    Norm,
    NormBack,
    node_symbol,
)
from mnemic.compiler.numbers import sampler
from mnemic.compiler.ranges import activation_of
from mnemic.compiler.retention import Link
from mnemic.compiler.rule import Rule
from mnemic.dsl.starts import Start, start_of

EPSILON: Final = 1e-5
CHANNELS: Final = 16

Vector = list[float]


class Untold(Exception):
    """Raised where a part of the start cannot be given in numbers."""


class Started:
    """A rule's memory where a layer starts it.

    Raises:
        Untold: a link or an activation has no number there.
    """

    def __init__(self, rule: Rule, draw: random.Random) -> None:
        self._rule, self._draw = rule, draw
        self._weights = {m.name: _matrix(rule, m, draw) for m in rule.network.matrices}
        self._sides = {m.name: (m.rows, m.columns) for m in rule.network.matrices}

    def at_a_key(self, length: float = 1.0) -> dict[str, Vector]:
        """Return the network's inputs at a random unit key whose features have the given length."""
        key = _unit([self._draw.gauss(0, 1) for _ in range(CHANNELS)])
        return {RAW: key, FEATURES: [length * x for x in key], ONE: [1.0]}

    def run(self, nodes: Iterable[Node], given: dict[str, Vector]) -> dict[str, Vector]:
        """Run nodes in order; return the given values and those of the nodes, by name."""
        found = dict(given)
        for node in nodes:
            found[node.name] = self._value(node, found)
        return found

    def _value(self, node: Node, found: dict[str, Vector]) -> Vector:
        match node:
            case Apply(matrix=matrix, source=source):
                own, x = self._weights[matrix], found[source]
                return self._zero(matrix, 0) if own is None else [dot(row, x) for row in own]
            case Back(matrix=matrix, source=source):
                own, x = self._weights[matrix], found[source]
                if own is None:
                    return self._zero(matrix, 1)
                return [dot(list(column), x) for column in zip(*own, strict=True)]
            case Map(expr=expr, sources=sources):
                at = _function(expr, [node_symbol(s) for s in sources])
                return [at(*x) for x in zip(*(found[s] for s in sources), strict=True)]
            case Norm(source=source):
                return _normed(found[source])[0]
            case NormBack(source=source, at=at_node):
                unit, scale = _normed(found[at_node])
                pulled = _centred(found[source])
                along = dot(pulled, unit) / len(unit)
                return [scale * (d - along * u) for d, u in zip(pulled, unit, strict=True)]

    def _zero(self, matrix: str, side: int) -> Vector:
        return [0.0] * _size(self._rule, self._sides[matrix][side])


def variance(x: Vector) -> float:
    """Return the variance of a vector's entries."""
    about = _centred(x)
    return dot(about, about) / len(about)


def _normed(x: Vector) -> tuple[Vector, float]:
    """Return LN(x), and 1/√(s² + ε)."""
    scale = 1 / math.sqrt(variance(x) + EPSILON)
    return [scale * z for z in _centred(x)], scale


def _function(expr: Any, names: list[Any]) -> Callable[..., float]:
    at = sampler(expr, names)

    def value(*given: float) -> float:
        found = at(*given)
        if found is None:
            raise Untold
        return found

    return value


# -- the matrices ----------------------------------------------------------------------------


def _matrix(rule: Rule, matrix: Matrix, draw: random.Random) -> list[Vector] | None:
    """Draw W_0 as a layer does; return None for zero."""
    rows, columns = _size(rule, matrix.rows), _size(rule, matrix.columns)
    link = rule.retained.link
    if matrix not in rule.parameters:
        flat = rule.retained.mode == "multiplicative"  # one number everywhere
        return [[1.0] * columns for _ in range(rows)] if flat else None
    plain = link.identity or link.normaliser == "norm"  # whose dual is as large as W_0 needs
    spread = 1 / math.sqrt(columns) if plain else link.unit or 1 / math.sqrt(columns)
    drawn = [[draw.gauss(0, spread) for _ in range(columns)] for _ in range(rows)]
    return drawn if plain else _linked(rule, link, drawn)


def _linked(rule: Rule, link: Link, dual: list[Vector]) -> list[Vector]:
    """Return link(A), for a link of single entries, a softmax or a ball; else raise Untold."""
    if link.expr is None:
        raise Untold
    at = _function(link.expr.subs(_starts(rule)), [sym.a])
    found = [[at(x) for x in row] for row in dual]
    if link.normaliser == "softmax":
        return _simplex(found, link.over, _scale(rule, link))
    if link.normaliser == "ball":
        size = math.sqrt(sum(dot(row, row) for row in found))
        return _times(found, min(1.0, _scale(rule, link) / size))
    if link.normaliser != "none":
        raise Untold
    return found


def _simplex(exponents: list[Vector], over: str, scale: float) -> list[Vector]:
    weights = [[math.exp(x) for x in row] for row in exponents]
    if over == "rows":
        return [[scale * x / sum(row) for x in row] for row in weights]
    if over == "columns":
        sums = [sum(column) for column in zip(*weights, strict=True)]
        return [[scale * x / s for x, s in zip(row, sums, strict=True)] for row in weights]
    return _times(weights, scale / sum(map(sum, weights)))


def _scale(rule: Rule, link: Link) -> float:
    """Return the link's scale at the start (all matrices start alike); else raise Untold."""
    starts = _starts(rule)
    first = starts.get(sym.coefficient("scale1"))
    found = link.scale.subs(starts)
    if found.is_number:
        return float(found)
    if first is None:
        raise Untold
    return float(first)


def _starts(rule: Rule) -> dict[Any, float]:
    """Return the coefficients with the values at which a layer starts them, where known."""
    found: dict[Any, float] = {}
    for scalar in rule.scalars:
        declared = scalar.declared
        told: Start = start_of(scalar.name)[1] if declared.activation is None else None
        value: float | None
        if scalar.argument is None:
            value = float(scalar.expr) if scalar.expr.is_number else None
        elif declared.starts:
            value = sum(declared.starts) / len(declared.starts)
        elif told is not None:
            value = sum(told) / 2 if isinstance(told, tuple) else float(told)
        else:
            value = sampler(activation_of(declared.activation, scalar.name), [sym.x])(0.0)
        if value is not None:
            found[scalar.symbol] = value
    return found


# -- vectors ---------------------------------------------------------------------------------


def _size(rule: Rule, side: str) -> int:
    widths = dict(rule.network.widths)
    return max(1, round(widths[side] * CHANNELS)) if side in widths else CHANNELS


def dot(x: Vector, y: Vector) -> float:
    """Return Σ x y."""
    return sum(a * b for a, b in zip(x, y, strict=True))


def _unit(x: Vector) -> Vector:
    size = math.sqrt(dot(x, x))
    return [a / size for a in x]


def _centred(x: Vector) -> Vector:
    mean = sum(x) / len(x)
    return [a - mean for a in x]


def _times(rows: list[Vector], factor: float) -> list[Vector]:
    return [[factor * x for x in row] for row in rows]
