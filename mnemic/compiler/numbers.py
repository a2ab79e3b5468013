"""Expressions compared on random numbers, at thirty digits."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice
from random import Random
from typing import Any, Literal, cast

import mpmath  # type: ignore[import-untyped]
import sympy as sp
from sympy.core.function import AppliedUndef

from mnemic.compiler import symbols as sym
from mnemic.compiler.branches import Branches
from mnemic.compiler.decisions import splits
from mnemic.compiler.drawn_points import Point, Reach, sample, sample_far, spread
from mnemic.compiler.edges import Edges
from mnemic.compiler.implicit import PLACE, NewErrorBase
from mnemic.compiler.symbolic import SMALL, simplified

DIGITS = 30
"""Digits that two values must share."""
SPARE = 30
"""Digits that a computation may lose on the way."""
SURE = 120
"""Digits of a second look: what loses more than ``SPARE`` on the way is another number there."""
SUREST = 1000
"""Digits of a second look at two that differ, also where exponentials of hundreds cancel."""
DOUBLE = 12
"""Digits that are left of an expression whose own constants have sixteen."""
ROUNDS, MOST_POINTS = 3, 300
"""How often points that visit branches are drawn, from those before, and how many each time."""


Answer = Literal["same", "different", "open"]
"""What numbers say of two expressions; ``open`` where they reach too little of them."""


def same_number(one: Any, other: Any, points: int = 4) -> bool:
    """Return whether two expressions agree to ``DIGITS`` digits wherever both have numbers."""
    return compare(one, other, points) == "same"


def compare(one: Any, other: Any, points: int = 4, reach: Reach | None = None) -> Answer:
    """Compare two expressions at random points, in every branch of both.

    ``reach`` gives the range of symbols that cannot take all numbers of their sign. Expressions
    with ``round`` are the same if they agree with a smooth function in its place, and different if
    their rounded values differ.
    """
    smooth = _compared(_opaque(one), _opaque(other), points, reach or {})
    if smooth != "different" or not any(sp.sympify(x).has(sym.round) for x in (one, other)):
        return smooth
    rounded = _compared(_spelled(one), _spelled(other), points, reach or {})
    return "different" if rounded == "different" else "open"


def _compared(one: Any, other: Any, points: int, reach: Reach) -> Answer:
    try:
        pair = _Pair(one, other, reach)
    except _UNPRINTED:
        return "same" if one == other else "different"
    try:
        return pair.compared(points)
    except _UNPRINTED:
        return "open"


class _Pair:
    """Two expressions, and whether they agree at points."""

    def __init__(self, one: Any, other: Any, reach: Reach) -> None:
        self.both, self.reach = (one, other), reach
        self.function, self.symbols = _function([one, other], cse=True)

    def compared(self, points: int) -> Answer:
        """Compare at points of all magnitudes, and in every branch if the expressions have any."""
        agreed: list[Point] = []
        for seed in range(4 * points):
            at = sample(self.symbols, seed, self.reach)
            found = self._agree(at, real=False)
            if found is False:
                return "different"
            agreed += [at] if found else []
            if len(agreed) == points or not self.symbols:
                break
        far = [sample_far(self.symbols, seed, self.reach) for seed in range(points)]
        if not agreed or not self._agree_at(far, agreed):
            return "different" if agreed else "open"
        rational = all(x.is_rational_function() for x in self.both)
        edges = Edges(self.both, self.symbols, self.reach) if any(map(splits, self.both)) else None
        ends = () if rational else spread(self.symbols, agreed[0], self.reach)
        if not self._agree_at((at for at in ends if edges is None or edges.beside(at)), agreed):
            return "different"
        return "same" if edges is None else self._in_branches(edges, far, agreed)

    def _in_branches(self, edges: Edges, bases: list[Point], agreed: list[Point]) -> Answer:
        branches = Branches(self.both, edges)
        for seed in range(ROUNDS):
            near = islice(edges.points(bases, seed), MOST_POINTS)
            if not self._agree_at(near, agreed):
                return "different"
            for at in agreed:
                branches.visit(at)
            if not branches.left:
                return "same"
            bases = Random(seed).sample(agreed, min(len(agreed), 4 * len(bases)))
        return "open"

    def _agree_at(self, points: Iterable[Point], agreed: list[Point]) -> bool:
        """Return whether the two differ at none of the points; add those where they agree."""
        for at in points:
            found = self._agree(at, real=True)
            if found is False:
                return False
            agreed += [at] if found else []
        return True

    def _agree(self, at: Point, *, real: bool) -> bool | None:
        """Return whether the two agree at a point; None where one has no (real) value, or where
        too many digits cancel to decide."""
        with mpmath.workdps(DIGITS + SPARE):
            found = _numbers(self.function, at)
        if found is None or (real and any(mpmath.im(x) != 0 for x in found)):
            return None
        if _close(*found):
            return True
        with mpmath.workdps(SUREST):
            sure = _numbers(self.function, at)
        if sure is None or not all(_close(a, b, DOUBLE) for a, b in zip(found, sure, strict=True)):
            return None
        return _close(*sure)


def vanishes(expression: Any) -> bool:
    """Return whether an expression is zero: simplified, or a large one at random points.

    Most expressions are nonzero at the first point, so they need not be simplified.
    """
    if _is_something(expression):
        return False
    found = simplified(expression)
    return bool(found == 0) or (sp.count_ops(found) > SMALL and same_number(found, sp.Integer(0)))


def _is_something(expression: Any) -> bool:
    """Return whether an expression has a nonzero value at a random point, with the same digits at
    every precision."""
    shown = _opaque(expression)
    try:
        alone, free = _function([shown])
    except _UNPRINTED:
        return False
    at = sample(free, 0)
    with mpmath.workdps(DIGITS + SPARE):
        found = _numbers(alone, at)
    with mpmath.workdps(SURE):
        sure_of = _numbers(alone, at)
    if found is None or sure_of is None:
        return False
    (first,), (sure,) = found, sure_of
    kept = DOUBLE if shown.has(sp.Float) else DIGITS
    return not _close(sure, mpmath.mpf(0), kept) and _close(first / sure, mpmath.mpf(1), DOUBLE)


_UNPRINTED = (KeyError, NotImplementedError, ValueError, SyntaxError, RecursionError, MemoryError)
"""What is raised for an expression that has no number, or that Python does not read."""


def _function(expressions: list[Any], *, cse: bool = False) -> tuple[Any, list[Any]]:
    """Return one function for expressions, and its symbols in order, however they are named."""
    free = set[Any]().union(*(one.free_symbols for one in expressions))
    ordered = sorted(free, key=lambda one: (str(one), type(one).__name__, sp.srepr(one)))
    modules = [{"round": mpmath.nint, **_VAST_SAFE}, "mpmath"]
    return sp.lambdify(ordered, expressions, modules, dummify=True, cse=cse), ordered


def _numbers(function: Any, at: list[Any]) -> list[Any] | None:
    """Return the numbers that a function finds, if all are finite, else None."""
    try:
        found = [mpmath.mpmathify(value) for value in function(*at)]
    except (ArithmeticError, ValueError, TypeError, NameError, RecursionError, MemoryError):
        return None
    return found if all(map(mpmath.isfinite, found)) else None


def _close(left: Any, right: Any, digits: int = DIGITS) -> bool:
    return bool(abs(left - right) <= mpmath.mpf(10) ** -digits * (1 + abs(left)))


def spelled(expression: Any) -> Any:
    """Write our own functions in terms of SymPy's."""
    found = sp.sympify(expression)
    found = found.replace(sym.sigmoid, lambda z: 1 / (1 + sp.exp(-z)))
    found = found.replace(sym.softplus, lambda z: sp.log(1 + sp.exp(z)))
    found = found.replace(sym.expm1, lambda z: sp.exp(z) - 1)
    return found.replace(sym.normal_cdf, lambda z: (1 + sp.erf(z / sp.sqrt(2))) / 2)


def _opaque(expression: Any) -> Any:
    """Replace opaque functions, and rounding, which hides differences, by fixed smooth ones."""
    return _spelled(sp.sympify(expression).replace(sym.round, lambda z: _stand_in("round", (z,))))


def _spelled(expression: Any) -> Any:
    """Write functions that SymPy lacks in its own, and opaque ones as fixed smooth stand-ins."""
    found = spelled(expression)
    found = found.replace(lambda z: isinstance(z, NewErrorBase), _function_of)
    for atom in sorted(found.atoms(AppliedUndef), key=sp.count_ops, reverse=True):
        found = found.subs(atom, _stand_in(str(atom.func), atom.args))
    return found


def _stand_in(name: str, arguments: tuple[Any, ...]) -> Any:
    phase = sp.Rational(sum(map(ord, name)) % 97, 97)
    return sum((sp.sin((i + 1) * a + phase) for i, a in enumerate(arguments)), sp.Integer(0))


def _function_of(root: Any) -> Any:
    """Write a root of s = e(ŷ − c s) by its function e, however that is spelled."""
    place = _stand_in("new_error", root.args[:2]) / 3
    table = dict(zip(root.holders, root.args[2:], strict=True))
    return root.signal.subs({PLACE: place, **table}, simultaneous=True)


def evaluated(expression: Any, at: dict[Any, Any]) -> float | None:
    """Return the expression's real value in double precision, ``None`` where it has none."""
    names = sorted(at, key=str)
    return sampler(expression, names)(*(at[s] for s in names))


def sampler(expression: Any, names: list[Any]) -> Callable[..., float | None]:
    """Return a function of ``names``, which is ``None`` where it has no finite real value."""
    found = _spelled(expression)
    if not found.free_symbols <= set(names):
        return lambda *_: None
    function = _lambdified(found, tuple(names))

    def value(*at: Any) -> float | None:
        try:
            raw = mpmath.mpmathify(function(*map(mpmath.mpf, at)))
        except (ZeroDivisionError, ValueError, OverflowError, TypeError):
            return None
        real = mpmath.re(raw)
        return float(real) if mpmath.im(raw) == 0 and mpmath.isfinite(real) else None

    return value


def _jump(x: Any, *order: Any) -> Any:
    """Return the slope of a step, or its slopes: 0, and infinite where it jumps."""
    del order
    return mpmath.inf if x == 0 else mpmath.mpf(0)


VAST = 10**30
"""Arguments from which an exponential is infinite: mpmath would take hours over exp(exp(10⁸))."""
LARGE = SUREST
"""Such arguments where digits are to be sure: of cosh² x − sinh² x none were left."""


def _growing(name: str) -> Callable[[Any], Any]:
    """Return exp, sinh or cosh as a function that gives its limit for very large arguments."""
    function = getattr(mpmath, name)

    def value(x: Any) -> Any:
        real = mpmath.re(x)
        most = VAST if mpmath.mp.dps < SUREST else LARGE
        if real >= (-VAST if name == "exp" else -most) and real <= most:
            return function(x)
        if mpmath.isnan(real) or mpmath.im(x) != 0:
            return mpmath.nan
        at_end = {"exp": 0, "sinh": -mpmath.inf, "cosh": mpmath.inf}
        return mpmath.inf if real > 0 else mpmath.mpf(at_end[name])

    return value


_VAST_SAFE = {name: _growing(name) for name in ("exp", "sinh", "cosh")}


@lru_cache(maxsize=1024)
def _lambdified(expression: Any, names: tuple[Any, ...]) -> Callable[..., Any]:
    modules = [{"round": mpmath.nint, "DiracDelta": _jump, **_VAST_SAFE}, "mpmath"]
    return cast(Callable[..., Any], sp.lambdify(names, expression, modules, dummify=True))
