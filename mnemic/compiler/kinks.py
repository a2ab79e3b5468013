"""The numbers at which a function of one number may have a kink or a jump."""

from collections.abc import Callable, Sequence
from typing import Any

import mpmath  # type: ignore[import-untyped]

from mnemic.compiler.decisions import splits
from mnemic.compiler.edges import Edges
from mnemic.compiler.numbers import spelled

SIDE = 1e-6
"""Distance from a kink, as a share of its size and one, at which both sides are looked at."""
NEARER = 1e-4
"""Share of that distance at which a jump is still as large, and a slope is not."""
ROUNDING = 1e-9


def kinks(function: Any, symbols: Sequence[Any]) -> Callable[..., list[float]]:
    """Return a function from the values of all symbols but the first to the kinks in the first.

    >>> import sympy as sp
    >>> x, c = sp.symbols("x c", real=True)
    >>> kinks(sp.Max(x, c) + sp.Abs(x), [x, c])(40)
    [0.0, 40.0]
    """
    shown = spelled(function)
    if not splits(shown):
        return lambda *_: []
    edges = Edges([shown], symbols, {})

    def at(*others: float) -> list[float]:
        base = [mpmath.mpf(0), *map(mpmath.mpf, others)]
        return sorted({float(x) for x, _ in edges.roots(0, base)})

    return at


def beside(kink: float, share: float = 1.0) -> tuple[float, float]:
    """Return two numbers on either side of a kink."""
    step = share * SIDE * (1 + abs(kink))
    return kink - step, kink + step


def is_jump(function: Callable[[float], float], kink: float) -> bool:
    """Return whether a function of one number jumps at a kink.

    >>> is_jump(abs, 0.0), is_jump(lambda x: 3.0 * (x > 2), 2.0)
    (False, True)
    """
    low, high = (function(x) for x in beside(kink))
    left, right = (function(x) for x in beside(kink, NEARER))
    return abs(right - left) > max(abs(high - low) / 2, ROUNDING * (1 + abs(left) + abs(right)))
