"""The range in which each argument keeps every expression that reads it meaningful."""

import math
from typing import Any

import sympy as sp

from mnemic.compiler.numbers import evaluated, spelled
from mnemic.compiler.problem import Problem, Scalar
from mnemic.compiler.ranges import activation_of, ranges_of
from mnemic.dsl.ranges import ANY, SIZE, Range, range_at

NEAR = 1e-6
"""How far beyond an end is looked whether it is one."""


def bounds(problem: Problem) -> dict[str, Range]:
    """Return the range of each coefficient that is an argument, in natural units.

    It is the intersection of what the coefficient's own place in the spec allows with what each
    expression in this coefficient alone allows: ``decay: {expr: "1 - a/8"}`` asks for an ``a`` in
    [0, 8). Where no place bounds it, its activation decides: at least 0, or any number.
    """
    arguments = [s for s in problem.scalars if s.argument is not None]
    found = {s.name: _of_itself(problem, s) for s in arguments}
    middle = {s.symbol: values for s, values in _values(problem, arguments)}
    for scalar in problem.scalars:
        names = scalar.expr.free_symbols
        if scalar.argument is None and len(names) == 1 and names <= middle.keys():
            (symbol,) = names
            allowed = range_at(problem.spec, scalar.place)
            left = preimage(scalar.expr, symbol, allowed, middle[symbol])
            found[symbol.name] = found[symbol.name].meet(left)
    return found


def _of_itself(problem: Problem, scalar: Scalar) -> Range:
    shape = activation_of(scalar.declared.activation, scalar.name)
    return range_at(problem.spec, scalar.place).meet(SIZE if shape.is_nonnegative else ANY)


def _values(problem: Problem, arguments: list[Scalar]) -> list[tuple[Scalar, float]]:
    """Pair each argument with the middle one of the values that its activation gives."""
    known = ranges_of(arguments)
    return [(s, known[s.symbol][len(known[s.symbol]) // 2]) for s in arguments if known[s.symbol]]


def preimage(expr: Any, symbol: Any, allowed: Range, inside: float) -> Range:
    """Return the interval around ``inside`` on which an expression of one symbol is in a range.

    An end that is not found is infinite; so are both where the expression is outside the range
    at ``inside`` itself.

    >>> a = sym.coefficient("a")
    >>> str(preimage(1 - a / 8, a, Range(0, 1, open_low=True), 0.5))
    'in [0, 8)'
    """

    def lies(x: float) -> bool:
        value = evaluated(expr, {symbol: x})
        return value is not None and value in allowed

    if not lies(inside):
        return ANY
    ends = [
        (place, is_open)
        for end, is_open in ((allowed.low, allowed.open_low), (allowed.high, allowed.open_high))
        for place in (_places(expr, symbol, end) if math.isfinite(end) else ())
    ]
    step = [NEAR * (1 + abs(x)) for x, _ in ends]
    least = [end for end, d in zip(ends, step, strict=True) if not lies(end[0] - d)]
    most = [end for end, d in zip(ends, step, strict=True) if not lies(end[0] + d)]
    low, open_low = max((e for e in least if e[0] <= inside), default=(-math.inf, False))
    high, open_high = min((e for e in most if e[0] >= inside), default=(math.inf, False))
    return Range(low, high, open_low, open_high)


def _places(expr: Any, symbol: Any, end: float) -> list[float]:
    """Solve for where an expression of one symbol reaches a number; [] where SymPy cannot."""
    plain = sp.Symbol("plain", real=True)
    try:
        found = sp.solveset(
            spelled(expr).subs(symbol, plain) - sp.nsimplify(end), plain, sp.S.Reals
        )
    except (ValueError, NotImplementedError):  # as for an inverse that has no value there
        return []
    return [float(x) for x in found] if isinstance(found, sp.FiniteSet) else []
