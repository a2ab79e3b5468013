"""Check that expressions depend on their symbols, and that coefficients have finite values."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import sympy as sp

from mnemic.compiler.indices import SEVERAL, indices_of
from mnemic.compiler.numbers import sampler, vanishes
from mnemic.compiler.points import points
from mnemic.compiler.problem import HEAD, Problem, Scalar
from mnemic.compiler.ranges import ranges_of
from mnemic.compiler.symbolic import read
from mnemic.dsl.texts import Text, texts
from mnemic.errors import Issue


def constants(problem: Problem) -> Iterator[Issue]:
    """Yield an issue for each expression that comes to a constant, as ``0*x`` and ``x - x`` do.

    f(x) is one where f(x) − f(z) vanishes for another symbol z. Losses are told by their gradient.
    """
    for text in texts(problem.spec):
        if text.needs and not text.where.startswith("bias") and _is_constant(text):
            symbols = " and ".join(sorted(text.needs))
            reason = f"comes to a constant, the same for every {symbols}"
            yield Issue(reason, text.where, text.text)


def _is_constant(text: Text) -> bool:
    names = {name: sp.Symbol(name, real=True) for name in text.symbols}
    expr = sp.sympify(read(text.text, names))
    found = expr.free_symbols & {names[name] for name in text.needs}
    others = {x: sp.Symbol(f"{x}_", real=True) for x in found}
    return not found or vanishes(expr - expr.xreplace(others))


def numberless(problem: Problem) -> Iterator[Issue]:
    """Yield an issue for each coefficient whose expression has no number at some token or head,
    whatever the coefficients in it are: 1/t at the first token, sqrt(1 - t) from the third."""
    for scalar in problem.scalars:
        where = _numberless(scalar, ranges_of(problem.scalars), indices_of(problem))
        if where is not None:
            reason = f"is no finite real number{where}"
            hint = "tokens and heads are counted from 0: write t + 1 or h + 1 where you divide"
            if scalar.expr.has(HEAD) and problem.spec.block.heads is None:
                hint += f"; block.heads says how many heads there are ({SEVERAL} are assumed)"
            text = scalar.declared.expr or scalar.name
            yield Issue(reason, scalar.place, text, hint=hint if where else None)


def _numberless(
    scalar: Scalar, values: dict[Any, list[float]], counted: dict[Any, list[float]]
) -> str | None:
    """Return the first place without a number, in words."""
    if scalar.declared.expr is None or not scalar.expr.free_symbols:
        return None
    indices = [x for x in counted if scalar.expr.has(x)]
    others = sorted(scalar.expr.free_symbols - {*indices}, key=str)
    function = sampler(scalar.expr, [*indices, *others])
    grid = [*points([values.get(x, [1.0]) for x in others])]
    for place in product(*(counted[x] for x in indices)):
        if all(function(*place, *point) is None for point in grid):
            named = (f"{x} = {at:g}" for x, at in zip(indices, place, strict=True))
            return " at " + ", ".join(named) if indices else ", whatever stands in it"
    return None
