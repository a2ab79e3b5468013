"""How steep a memory's norms are where a layer starts: a forward pass of the network, in numbers.

LN(z) has the slope 1/√(s² + ε) in z, s² the variance of z's entries. A step along it changes z by
η/(s² + ε) of itself, so a z near zero takes one step that is so long that no later one moves what
it left: the memory remembers its first chunk and no other.
"""

import math
import random
from collections.abc import Callable
from typing import Any, Final

from mnemic.compiler import symbols as sym
from mnemic.compiler.network import FEATURES, ONE, RAW, Apply, Map, Matrix, Norm, node_symbol
from mnemic.compiler.numbers import sampler
from mnemic.compiler.ranges import activation_of
from mnemic.compiler.retention import Link
from mnemic.compiler.rule import Rule
from mnemic.dsl.starts import Start, start_of

EPSILON: Final = 1e-5
STEEP: Final = 30.0
"""A slope from here on counts as steep: a tenth of the 316 that it has at zero."""
CHANNELS: Final = 16
KEYS: Final = 4

Vector = list[float]


def warning(rule: Rule) -> str | None:
    """Warn of a layer of this rule that starts with a steep norm; ``None`` elsewhere."""
    slope = steepest(rule)
    if slope is None or slope < STEEP:
        return None
    return (
        f"Where a layer starts the norm's input is next to nothing and the norm's slope {slope:.0f}"
        " (1/√ε is 316): the first step is so long that later ones hardly move the memory, and only"
        f" the first chunk is remembered. {_mend(rule)}"
    )


def _mend(rule: Rule) -> str:
    if rule.kernels is not None:
        return (
            "Behind a kernel the memory starts without pairs, so that an activation of 0 at 0 gives"
            " the norm a zero: take finite features, no norm, or an activation that is not 0 there."
        )
    return "Let the link, the scale and the activations give the norm more than √ε = 0.003."


def steepest(rule: Rule) -> float | None:
    """Return the largest slope of a norm at the start, of some unit keys.

    ``None`` without a norm, and where a start cannot be told in numbers.
    """
    if not rule.network.normed:
        return None
    draw = random.Random(0)
    try:
        weights = {m.name: _matrix(rule, m, draw) for m in rule.network.matrices}
        least = min(_least(rule, weights, draw) for _ in range(KEYS))
    except _Untold:
        return None
    return 1 / math.sqrt(least + EPSILON)


class _Untold(Exception):
    """A part of the start that has no number here."""


# -- the network -----------------------------------------------------------------------------


def _least(rule: Rule, weights: dict[str, list[Vector] | None], draw: random.Random) -> float:
    """Return the least variance that a norm of the network is given for one random key."""
    key = _unit([draw.gauss(0, 1) for _ in range(CHANNELS)])
    found, least = {RAW: key, FEATURES: key, ONE: [1.0]}, math.inf
    rows = {m.name: _size(rule, m.rows) for m in rule.network.matrices}
    for node in rule.network.nodes:
        match node:
            case Apply(name=name, matrix=matrix, source=source):
                own, x = weights[matrix], found[source]
                found[name] = [0.0] * rows[matrix] if own is None else [_dot(w, x) for w in own]
            case Map(name=name, expr=expr, sources=sources):
                at = _function(expr, [node_symbol(s) for s in sources])
                found[name] = [at(*x) for x in zip(*(found[s] for s in sources), strict=True)]
            case Norm(name=name, source=source):
                centred = _centred(found[source])
                variance = _dot(centred, centred) / len(centred)
                least = min(least, variance)
                found[name] = [x / math.sqrt(variance + EPSILON) for x in centred]
    return least


def _function(expr: Any, names: list[Any]) -> Callable[..., float]:
    at = sampler(expr, names)

    def value(*given: float) -> float:
        found = at(*given)
        if found is None:
            raise _Untold
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
    """Return link(A), for a link of single entries, a softmax or a ball; else raise _Untold."""
    if link.expr is None:
        raise _Untold
    at = _function(link.expr.subs(_starts(rule)), [sym.a])
    found = [[at(x) for x in row] for row in dual]
    if link.normaliser == "softmax":
        return _simplex(found, link.over, _scale(rule, link))
    if link.normaliser == "ball":
        size = math.sqrt(sum(_dot(row, row) for row in found))
        return _times(found, min(1.0, _scale(rule, link) / size))
    if link.normaliser != "none":
        raise _Untold
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
    """Return the link's scale at the start (all matrices start alike); else raise _Untold."""
    starts = _starts(rule)
    first = starts.get(sym.coefficient("scale1"))
    found = link.scale.subs(starts)
    if found.is_number:
        return float(found)
    if first is None:
        raise _Untold
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


def _dot(x: Vector, y: Vector) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def _unit(x: Vector) -> Vector:
    size = math.sqrt(_dot(x, x))
    return [a / size for a in x]


def _centred(x: Vector) -> Vector:
    mean = sum(x) / len(x)
    return [a - mean for a in x]


def _times(rows: list[Vector], factor: float) -> list[Vector]:
    return [[factor * x for x in row] for row in rows]
