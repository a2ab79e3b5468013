"""The heads, number of heads and tokens at which expressions of these are sampled."""

from typing import Any, Final

from mnemic.compiler.problem import HEAD, HEADS, TIME, Problem
from mnemic.compiler.ranges import ranges_of

SEVERAL: Final = 8
"""The number of heads where a spec leaves it to the width of the layer."""
TOKENS: Final = (0.0, 1.0, 2.0, 3.0, 9.0, 999.0)


def indices_of(problem: Problem) -> dict[Any, list[float]]:
    """Return heads of the spec's own number, that number, and tokens, early and late.

    Of the heads these are the first two, one in the middle and the last.
    """
    heads = problem.spec.block.heads or SEVERAL
    some = sorted({0, min(1, heads - 1), heads // 2, heads - 1})
    return {HEAD: [*map(float, some)], HEADS: [float(heads)], TIME: [*TOKENS]}


def places_of(problem: Problem) -> dict[Any, list[float]]:
    """Return, by symbol, the numbers at which expressions are sampled: coefficients and indices."""
    return {**ranges_of(problem.scalars), **indices_of(problem)}


def values_in(problem: Problem, expr: Any, *known: Any) -> dict[Any, list[float]]:
    """Return values of the symbols of an expression but the known: of coefficients, heads and
    tokens; 0.5 of any other."""
    values = places_of(problem)
    free = sorted(expr.free_symbols - {*known}, key=str)
    return {x: values.get(x, [0.5]) for x in free}
