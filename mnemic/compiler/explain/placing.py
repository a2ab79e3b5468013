"""Whether a rule's step keeps its bound, from the ranges of its coefficients and keys."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.contraction import SUPREMUM
from mnemic.compiler.explain.key_sizes import KeySize, key_size, product_symbol
from mnemic.compiler.explain.printing import steps_of, text
from mnemic.compiler.explain.spans import INFINITE, ranges, span
from mnemic.compiler.indices import places_of
from mnemic.compiler.numbers import sampler
from mnemic.compiler.points import points
from mnemic.compiler.problem import TIME
from mnemic.compiler.rule import Rule

__all__ = [
    "EDGE", "TIME", "Found", "describe_place", "number", "place", "read", "values", "warning",
]  # fmt: skip

EDGE = 1e-9
"""Nearer than this to the bound counts as on it."""
MOST_POINTS = 4000
ANY_SIZE = (1e-3, 1.0, 1e3, 1e6)
"""Sizes of keys that are tried where nothing bounds them."""

Place = Literal["inside", "on", "outside", "unknown"]


@dataclass(frozen=True)
class Found:
    """The place, what was read, and the worst point: step, bound and values there."""

    place: Place
    read: tuple[str, ...]
    step: Any
    bound: Any
    worst: dict[Any, float]
    curvatures: list[float] | None = None


def place(rule: Rule, step: Any, bound: Any, curvatures: list[float] | None = None) -> Found:
    """Compare ``step`` < ``bound`` over the ranges of everything in it."""
    keys = key_size(rule)
    spans = {**places_of(rule.problem), SUPREMUM: curvatures or [1.0]}
    spans[product_symbol(rule)] = _sizes(keys)
    names = sorted((step.free_symbols | bound.free_symbols), key=str)
    shown = read(rule, step + bound, keys, curvatures)
    if any(name not in spans for name in names):
        return Found("unknown", shown, step, bound, {})
    rows = list(_rows(step, bound, names, spans))
    if any(math.isnan(row[0]) for row in rows):
        return Found("unknown", shown, step, bound, {})
    worst = min(rows, key=_room)
    at = dict(zip(names, worst[2], strict=True))
    verdict = _verdict(rows, keys, names, product_symbol(rule))
    return Found(verdict, shown, step, bound, at, curvatures)


def _room(row: tuple[float, float, tuple[float, ...]]) -> float:
    """Return the room up to the bound, negative outside; also for a step below zero, which climbs
    the loss."""
    step, bound, _ = row
    return min(bound - step, step) if step < -EDGE else bound - step


def _sizes(keys: KeySize) -> list[float]:
    if math.isinf(keys.high):
        return [*ANY_SIZE, *((-z for z in ANY_SIZE) if keys.low < 0 else ())]
    return [keys.high, keys.high / 2, keys.low]


def _rows(
    step: Any, bound: Any, names: list[Any], spans: dict[Any, list[float]]
) -> Iterator[tuple[float, float, tuple[float, ...]]]:
    left, right = sampler(step, names), sampler(bound, names)
    for point in _sampled([spans[name] for name in names]):
        values = left(*point), right(*point)
        size, room = (math.nan if v is None else v for v in values)
        yield (size if not math.isnan(room) else math.nan), room, point


def _sampled(choices: list[list[float]]) -> Iterator[tuple[float, ...]]:
    """Yield at most ``MOST_POINTS`` combinations of values: all of the thinned-out ranges, which
    keep their ends, or a sample where even these are too many."""
    lists = _thinned([sorted(set(values)) for values in choices])
    return product(*lists) if math.prod(map(len, lists)) <= MOST_POINTS else points(lists)


def _thinned(lists: list[list[float]]) -> list[list[float]]:
    """Drop inner values of ranges until the combinations are few, or only the ends are left."""
    while math.prod(map(len, lists)) > MOST_POINTS:
        longest = max(range(len(lists)), key=lambda i: len(lists[i]))
        if len(lists[longest]) <= 2:
            return lists
        values = lists[longest]
        lists[longest] = [values[0], *values[1:-1:2], values[-1]]
        if len(lists[longest]) == len(values):
            lists[longest] = [values[0], values[-1]]
    return lists


def _verdict(
    rows: list[tuple[float, float, tuple[float, ...]]], keys: KeySize, names: list[Any], key: Any
) -> Place:
    room = min(right - left for left, right, _ in rows)
    depends = key in names and (math.isinf(keys.high) or keys.low < 0)
    if depends:
        harmless = room >= -EDGE and min(left for left, *_ in rows) >= -EDGE
        return "inside" if harmless and keys.low >= 0 else "unknown"
    if room < -EDGE or min(left for left, *_ in rows) < -EDGE:
        return "outside"
    fixed = not set(names) - {key}
    return "on" if fixed and abs(room) <= EDGE else "inside"


# -- the numbers ------------------------------------------------------------------------------


def values(rule: Rule, expr: Any) -> list[float]:
    """Return the values that an expression takes; none where a coefficient is unknown."""
    spans = places_of(rule.problem)
    names = sorted(expr.free_symbols, key=str)
    if any(name not in spans for name in names):
        return []
    at = sampler(expr, names)
    found = [at(*point) for point in _sampled([spans[name] for name in names])]
    return [v for v in found if v is not None]


def read(
    rule: Rule, expr: Any, keys: KeySize | None = None, curvatures: list[float] | None = None
) -> tuple[str, ...]:
    """Return the coefficients of an expression with their ranges, and the size of the keys."""
    timed, spans = steps_of(rule), ranges(rule)
    known = {s for s in expr.free_symbols if s in spans}
    found = [f"{text(s, timed)} in {span(spans[s])}" for s in sorted(known, key=str)]
    if keys is not None and product_symbol(rule) in expr.free_symbols:
        found.append(keys.words)
    if curvatures and SUPREMUM in expr.free_symbols:
        found.append(f"sup ℓ″ from {min(curvatures):.4g} to {max(curvatures):.4g}")
    return tuple(found)


def number(value: float, *, endless: bool = False) -> str:
    """Write a number for a warning; ``endless`` where a coefficient is unbounded.

    >>> number(2.0), number(1e13, endless=True)
    ('2', '∞')
    """
    if endless:
        return "∞" if value > 0 else "−∞"
    return f"{value:.4g}".replace("-", "−")


def describe_place(rule: Rule, found: Found) -> str:
    """Say in a sentence whether a rule's step keeps its bound."""
    given = f" ({'; '.join(found.read)})" if found.read else ""
    return {
        "inside": f"This rule stays inside{given}.",
        "on": f"This rule is on the bound{given}: errors neither shrink nor grow.",
        "outside": f"This rule may leave it{given}.",
        "unknown": f"Whether this rule does depends on the input{given}.",
    }[found.place]


def warning(rule: Rule, found: Found) -> str:
    """Warn of a step outside its bound: the values read, the bound, and the smallest change that
    would bring it inside."""
    at = {name: sp.Float(value) for name, value in found.worst.items()}
    size, bound = (float(side.subs(at)) for side in (found.step, found.bound))
    timed, key = steps_of(rule), product_symbol(rule)
    endless = any(abs(v) >= INFINITE for name, v in found.worst.items() if name != key)
    step, verb = text(found.step, timed), "may reach" if found.worst.keys() - {key} else "is"
    given = f"with {'; '.join(found.read)}: " if found.read else ""
    start = f"Outside the stable range: {given}{step} {verb} {number(size, endless=endless)}"
    if size < -EDGE:
        return f"{start}, and a step below zero climbs. Nearest mend: a rate above zero (sigmoid)."
    limit = number(bound)
    if found.bound.free_symbols:
        limit += f" (= {text(found.bound, timed)} there)"
    return f"{start}, where the bound is {limit}. {_mend(rule, found)}"


def _mend(rule: Rule, found: Found) -> str:
    """Write the smallest change that brings the step inside its bound."""
    origins = {s.symbol: s.declared.origin for s in rule.scalars}
    for name, where in (("eta", "optimizer.rate"), ("gamma", "weights.gamma")):
        symbol = sym.coefficient(name)
        safe = _safe(rule, found, symbol)
        if safe is not None and safe > 0:
            entry = f"{{from: {origins[symbol]}, activation: {safe:g}*sigmoid(x)}}"
            return f"Nearest mend: {where}: {entry}."
    shrink = _ratio(found)
    if shrink is None or not rule.rate.is_number:
        return "Nearest mend: a smaller rate."
    return f"Nearest mend: a rate under {float(rule.rate) * shrink:.3g}."


def _safe(rule: Rule, found: Found, symbol: Any) -> float | None:
    """Return a learned coefficient's largest value inside, rounded down to 3 digits, or None."""
    linear = sp.expand(found.step / symbol)
    if symbol not in found.step.free_symbols or linear.has(symbol) or found.bound.has(symbol):
        return None
    return _ratio(place(rule, found.step.subs(symbol, 1), found.bound, found.curvatures))


def _ratio(found: Found) -> float | None:
    """Return the least bound over step, rounded down to 3 digits; None unless both are positive."""
    at = {name: sp.Float(value) for name, value in found.worst.items()}
    size, bound = (float(side.subs(at)) for side in (found.step, found.bound))
    if size <= 0 or bound <= 0:
        return None
    scale = 10.0 ** (math.floor(math.log10(bound / size)) - 2)
    return math.floor(bound / size / scale + EDGE) * scale
