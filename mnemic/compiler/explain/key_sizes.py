"""How large predict·erase (‖φ‖², where both are the key) is over the keys that a block gives."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.spans import INFINITE, ranges
from mnemic.compiler.numbers import sampler
from mnemic.compiler.rule import Rule
from mnemic.compiler.symbolic import read

HEAD = 64
"""Channels of a key where the block does not say."""
PARTS = 120
"""Sizes of a coordinate that an elementwise map is tried at."""

VECTORS = ("k", "predict", "erase", "write", "carry", "v")


@dataclass(frozen=True)
class KeySize:
    """``low`` ≤ predict·erase ≤ ``high`` (infinite where the input decides), said in words."""

    low: float
    high: float
    words: str


def key_size(rule: Rule) -> KeySize:
    """Return the range of predict·erase, and the reason for its bound in words."""
    low, high = _factor(rule)
    if rule.kernels is not None and not positive_definite(rule.kernels.predict.expr):
        name = product_name(rule)
        return KeySize(-math.inf, math.inf, f"{name} of either sign (κ is not positive definite)")
    unit = rule.problem.spec.block.qk_norm == "l2"
    size = _squared_norm(rule, unit)
    name = product_name(rule)
    if math.isinf(size) or math.isinf(high):
        why = "keys are not normed" if not unit else "it depends on the input"
        return KeySize(-math.inf if low < 0 else 0.0, math.inf, f"{name} without a bound ({why})")
    least, most = min(0.0, low * size), max(0.0, high * size)
    shown = f"{name} ≤ {most:.4g}" if least == 0 else f"{name} in ({least:.4g}, {most:.4g})"
    return KeySize(least, most, f"{shown} ({_why(rule, unit)})")


def _why(rule: Rule, unit: bool) -> str:
    """Say what bounds the size of keys."""
    if rule.problem.features == sym.x:
        return "unit keys"
    told = "features of unit keys" if unit else "bounded features"
    by_entry = rule.kernels is None and rule.problem.features is not None
    return f"{told}, {_channels(rule)} channels" if by_entry else told


def _channels(rule: Rule) -> int:
    """Return how many channels a key has, with which the bound of a map by entry grows."""
    return rule.problem.spec.block.key_dim or HEAD


def product_name(rule: Rule) -> str:
    """Return how the product of the keys is called in a bound: ‖φ‖² or predict·erase."""
    return "‖φ‖²" if _same(rule) else "predict·erase"


def product_symbol(rule: Rule) -> Any:
    """Return κ, or predict·erase where these keys differ."""
    return sym.kappa if _same(rule) else sp.Symbol("predict·erase", real=True)


def _same(rule: Rule) -> bool:
    return bool(rule.problem.keys["predict"] == rule.problem.keys["erase"])


def _factor(rule: Rule) -> tuple[float, float]:
    """Return the range of predict·erase over ‖φ‖²: 1 for one key, by Cauchy for two unlike ones."""
    both = rule.problem.keys["predict"] * rule.problem.keys["erase"]
    found = {s for s in both.free_symbols if type(s) is sp.Symbol and s.name in VECTORS}
    vectors = sorted(found, key=str)
    if len(vectors) == 1:
        low, high = _values(rule, sp.simplify(both / vectors[0] ** 2), set(vectors))
        return low, high
    if len(vectors) == 2:
        low, high = _values(rule, sp.simplify(both / (vectors[0] * vectors[1])), set(vectors))
        most = max(abs(low), abs(high))
        return -most, most
    return -math.inf, math.inf


def _values(rule: Rule, factor: Any, vectors: set[Any]) -> tuple[float, float]:
    if factor.free_symbols & vectors:
        return -math.inf, math.inf
    spans = ranges(rule)
    low, high = 1.0, 1.0
    for part in sp.Mul.make_args(factor):
        names = sorted(part.free_symbols, key=str)
        if len(names) > 1 or (names and names[0] not in spans):
            return -math.inf, math.inf
        at = sampler(part, names)
        raw = [at(z) for z in spans[names[0]]] if names else [at()]
        values = [z for z in raw if z is not None]
        ends = [a * b for a in (low, high) for b in (min(values), max(values))]
        low, high = min(ends), max(ends)
    return low, high


def positive_definite(kernel: Any, size: int = 4, count: int = 14) -> bool:
    """Return whether κ(x·y) of random unit vectors is a positive semidefinite matrix."""
    source = random.Random(0)
    rows = [[source.gauss(0, 1) for _ in range(size)] for _ in range(count)]
    unit = [[z / math.hypot(*row) for z in row] for row in rows]
    at = sampler(kernel, [sym.s])
    gram = mpmath.matrix(count, count)
    for i, j in combinations_with_replacement(range(count), 2):
        value = at(1.0 if i == j else sum(a * b for a, b in zip(unit[i], unit[j], strict=True)))
        gram[i, j] = gram[j, i] = math.nan if value is None else value
    if any(math.isnan(float(z)) for z in gram):
        return False
    sizes = [float(z) for z in mpmath.eigsy(gram, eigvals_only=True)]
    return min(sizes) >= -1e-9 * max(map(abs, sizes))


# -- ‖φ(k)‖² ------------------------------------------------------------------------------------


def _squared_norm(rule: Rule, unit: bool) -> float:
    """Return sup ‖φ(k)‖² over unit keys, or over all of them."""
    expr = rule.problem.features
    size = _channels(rule)
    if rule.kernels is not None:
        return _by_norm(rule.kernels.predict.expr, sym.s, unit)
    if expr is None:
        told = _largest(rule)
        return math.inf if told is None else _by_norm(told, sym.s, unit)
    if expr == sym.x:
        return 1.0 if unit else math.inf
    at = sampler(expr, [sym.x])
    return _on_the_sphere(at, size) if unit else _everywhere(at, size)


def _largest(rule: Rule) -> Any | None:
    """Return the map's own bound in s = ‖x‖², its coefficients at their largest; None without."""
    told, problem = rule.problem.spec.features.largest, rule.problem
    if told is None:
        return None
    own = {name: problem.value(name) for name, _, _ in problem.spec.features.coefficients()}
    found, spans = read(told, {"s": sym.s, **own}), ranges(rule)
    table = {}
    for symbol in found.free_symbols - {sym.s}:
        if symbol not in spans or max(spans[symbol]) >= INFINITE:
            return None
        table[symbol] = sp.Float(max(spans[symbol]))
    return found.subs(table)


def _square(at: Callable[..., float | None], x: float) -> float:
    values = [at(x), at(-x)]
    return max(math.inf if v is None else v * v for v in values)


def _on_the_sphere(at: Callable[..., float | None], size: int) -> float:
    """Return sup Σ f(x_i)² over ‖x‖ = 1: ``size`` times the concave hull of f² in x² at 1/size."""
    places = sorted({*((i / PARTS) ** 2 for i in range(PARTS + 1)), 1 / size})
    heights = [_square(at, math.sqrt(s)) for s in places]
    target = 1 / size
    best = heights[places.index(target)]
    for left, low in zip(places, heights, strict=True):
        for right, high in zip(places, heights, strict=True):
            if left < target < right:
                share = (target - left) / (right - left)
                best = max(best, (1 - share) * low + share * high)
    return size * best


def _everywhere(at: Callable[..., float | None], size: int) -> float:
    near, far = (max(_square(at, reach * i / 20) for i in range(21)) for reach in (1e3, 1e6))
    return math.inf if math.isinf(far) or far > 2 * near else size * max(near, far)


def _by_norm(largest: Any, square: Any, unit: bool) -> float:
    """Return the map's own bound in ‖x‖² (a kernel's value at x·x), for unit keys or large ones."""
    at = sampler(largest, [square])
    near, far = (at(s) for s in (1.0, 1e6))
    if near is None or (not unit and (far is None or far > near)):
        return math.inf
    return near
