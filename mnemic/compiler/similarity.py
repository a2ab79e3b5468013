"""The weight of a kept key at a query: its logarithm, terms and sign, read off the expression.

A similarity that is a product of exponentials is represented by its logarithm, L. Terms of L in the
query alone cancel in every local fit. Where the rest is slope·(k·q) + Σ f_j(q) g_j(k), L is one
inner product of longer vectors, which is what attention libraries compute.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import sampler
from mnemic.compiler.points import points

Sign = Literal["positive", "nonnegative", "any"]

OF_KEYS = (sym.kq, sym.kk)
"""What differs from one kept key to the next."""

GRID = (-3.0, -1.0, -0.3, 0.0, 0.4, 1.0, 2.5)
"""Products k·q at which a weight's sign is looked at, and half of ‖k − q‖² beside them."""

ROUNDING = 1e-12
"""How far below zero a weight may come by rounding."""


@dataclass(frozen=True)
class Linear:
    """L = slope·(k·q) + Σ coefficient·term(k), apart from terms in the query alone."""

    slope: Any
    terms: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class Similarity:
    """w(k, q), ``stated`` in s and d2, ``weight`` in k·q, ‖k‖², ‖q‖² and d_k.

    ``logit`` is its logarithm up to terms of the query alone, where that is an expression;
    ``linear`` the logit's parts where it is an inner product.
    """

    stated: Any
    weight: Any
    logit: Any | None
    linear: Linear | None
    sign: Sign

    @property
    def score(self) -> Any:
        """What the forms compute for every pair: the logit, or the weight itself."""
        return self.weight if self.logit is None else self.logit


def derive(stated: Any, scale: Any, values: Mapping[Any, list[float]]) -> Similarity:
    """Return everything that follows from the expression; ``scale`` is the factor in s, ``values``
    what coefficients take, by their symbols."""
    distance = sym.kk + sym.qq - 2 * sym.kq
    table = {sym.s: scale * sym.kq, sym.d2: distance}
    logarithm = log_of(stated)
    logit = None if logarithm is None else relative(logarithm.subs(table, simultaneous=True))
    return Similarity(
        stated=stated,
        weight=stated.subs(table, simultaneous=True),
        logit=logit,
        linear=None if logit is None else linear(logit),
        sign="positive" if logit is not None else _sign(stated, values),
    )


def log_of(weight: Any) -> Any | None:
    """Return log w of a product of exponentials and positive factors, ``None`` of anything else.

    >>> log_of(sp.exp(2 * sym.s) * sp.exp(-sym.d2))
    -d2 + 2*s
    """
    if isinstance(weight, sp.exp):
        return weight.args[0]
    if isinstance(weight, sym.sigmoid):
        return -sym.softplus(-weight.args[0])
    if isinstance(weight, sp.Pow):
        inner = log_of(weight.base)
        return None if inner is None else weight.exp * inner
    if isinstance(weight, sp.Mul):
        parts = [log_of(factor) for factor in weight.args]
        return None if any(part is None for part in parts) else sp.Add(*parts)
    free = weight.free_symbols & {sym.s, sym.d2}
    return sp.log(weight) if weight.is_positive and not free else None


def relative(logit: Any) -> Any:
    """Return the logit without the terms that are the same for every key."""
    terms = sp.Add.make_args(sp.expand(logit))
    return sp.Add(*(term for term in terms if term.has(*OF_KEYS)))


def linear(logit: Any) -> Linear | None:
    """Return the parts of a logit that is an inner product, else ``None``."""
    slope = sp.diff(logit, sym.kq)
    if slope.has(*OF_KEYS):
        return None
    found = []
    for term in sp.Add.make_args(sp.expand(logit - slope * sym.kq)):
        outer, inner = term.as_independent(sym.kk, as_Add=False)
        if inner.free_symbols - {sym.kk}:
            return None
        if term != 0:
            found.append((outer, inner))
    return Linear(slope, tuple(found))


def _sign(stated: Any, values: Mapping[Any, list[float]]) -> Sign:
    """Return ``any`` if the weight may be negative, else ``nonnegative``: by SymPy, or by sampling
    with coefficients at the least, the middle and the largest of their values."""
    if stated.is_nonnegative:
        return "nonnegative"
    others = sorted(stated.free_symbols - {sym.s, sym.d2}, key=str)
    at = sampler(stated, [sym.s, sym.d2, *others])
    chosen = [*points([values.get(name, [1.0]) for name in others])]
    for s, d2, place in product(GRID, GRID, chosen):
        value = at(s, abs(d2), *place)
        if value is not None and value < -ROUNDING:
            return "any"
    return "nonnegative"
