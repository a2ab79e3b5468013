"""A link that the spec states: used as given, and tested whether any retention has it.

A retention's link is the gradient of its convex conjugate. So its Jacobian is symmetric, and W
moves with A: ⟨W − W', A − A'⟩ ≥ 0. Both are tested at points, in digits enough to tell.
"""

from collections.abc import Iterator
from typing import Any, Final

import mpmath  # type: ignore[import-untyped]
import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import spelled
from mnemic.compiler.retention import Link, Retained

POINTS: Final = ((0.9, -0.4, 0.3), (2.1, 0.6, -1.3), (-0.2, 0.5, 0.15), (0.05, 1.7, -0.8))
"""Three entries of a dual each."""

DIGITS: Final = 60
SAME: Final = mpmath.mpf(10) ** -15


def retained(entry: Any, power: float) -> Retained:
    """Return a retention with W = link(A) by entry, ν the ``power``-norm of A; A is the state."""
    normaliser: Any = "norm" if entry.has(sym.nu) else "none"
    link = Link(entry, normaliser, power=sp.nsimplify(power, rational=True))
    return Retained(
        "dual",
        sp.Integer(1),
        sp.Integer(1),
        link,
        sym.w,
        steps=(("link", entry), ("its retention", origin(entry, power))),
        reason="the link as stated, not derived",
    )


def origin(entry: Any, power: float) -> str:
    """Return whether a retention has this link, in words.

    >>> origin(sym.a**3, 2)
    'a convex retention has this link: the one whose conjugate it is the gradient of'
    """
    jacobians = list(_jacobians(entry, power))
    if not jacobians:
        return "not told: the link has no finite slope at the points where it was tried"
    if not all(_symmetric(jacobian) for jacobian in jacobians):
        return (
            "none: ∂W_i/∂A_j and ∂W_j/∂A_i differ, and a retention's link is the gradient of its "
            "conjugate"
        )
    if not all(_grows(jacobian) for jacobian in jacobians):
        return "none that is convex: the memory moves against the dual"
    return "a convex retention has this link: the one whose conjugate it is the gradient of"


def _jacobians(entry: Any, power: float) -> Iterator[Any]:
    """Yield ∂W/∂A at each point where it is finite; coefficients are 0.7."""
    free = {s: sp.Rational(7, 10) for s in entry.free_symbols - {sym.a, sym.nu}}
    link = sp.lambdify((sym.a, sym.nu), spelled(entry.subs(free)), "mpmath")
    with mpmath.workdps(DIGITS):
        step = mpmath.mpf(10) ** (-DIGITS // 3)
        for point in POINTS:
            try:
                yield _jacobian(link, [mpmath.mpf(x) for x in point], power, step)
            except (TypeError, ValueError, ZeroDivisionError, OverflowError):
                continue


def _jacobian(link: Any, point: list[Any], power: float, step: Any) -> Any:
    """Take central differences of the whole link: W_i along A_j in row i and column j."""
    size = len(point)
    found = mpmath.matrix(size, size)
    for j in range(size):
        ends = []
        for side in (1, -1):
            moved = [x + side * step * (i == j) for i, x in enumerate(point)]
            norm = sum(abs(x) ** power for x in moved) ** (1 / mpmath.mpf(power))
            ends.append([mpmath.mpf(link(x, norm)) for x in moved])
        for i in range(size):
            found[i, j] = (ends[0][i] - ends[1][i]) / (2 * step)
    return found


def _symmetric(jacobian: Any) -> bool:
    return bool(mpmath.mnorm(jacobian - jacobian.T) <= SAME * (1 + mpmath.mnorm(jacobian)))


def _grows(jacobian: Any) -> bool:
    lowest = min(mpmath.eigsy((jacobian + jacobian.T) / 2, eigvals_only=True))
    return bool(lowest >= -SAME * (1 + mpmath.mnorm(jacobian)))
