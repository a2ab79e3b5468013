"""The error at the new prediction: the root s of s = e(ŷ − c s), for a loss that is convex.

SymPy knows nothing of this function but its derivatives, those of an implicit function. With
p = ∂e/∂ŷ at the new prediction,

    ∂s/∂ŷ = p/(1 + c p),   ∂s/∂c = −s p/(1 + c p),   ∂s/∂x = ∂e/∂x/(1 + c p),

and where e jumps, p is infinite: s then lies inside the jump, where the new prediction stays.
"""

from functools import cache
from hashlib import sha256
from typing import Any, ClassVar

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.symbolic import simplified, tidy

PLACE = sp.Symbol("u", real=True)
"""The new prediction, or the new residual where the error depends on that alone."""

ROOT = sp.Symbol("s", real=True)

ENDLESS = sp.Float("1e30")
"""Stands for the slope of a jump."""


class steep(sp.Function):  # type: ignore[misc]
    """steep(s, e(u), p): the slope p at a root s, ``ENDLESS`` where s lies inside a jump of e."""

    nargs = 3

    def _eval_is_extended_real(self) -> bool:
        return True


class NewErrorBase(sp.Function):  # type: ignore[misc]
    """The function s(ŷ, c, x…); ``new_error`` makes one subclass for each equation.

    SymPy's printers recognise a base class by a name that ends in ``Base``.

    ``signal`` is e at ``PLACE`` with ``holders`` for x, ``slope`` its derivative, ``steepest``
    sup ∂e/∂ŷ (``oo`` where there is none), ``jumps`` whether e may jump.
    """

    signal: ClassVar[Any]
    slope: ClassVar[Any]
    holders: ClassVar[tuple[Any, ...]]
    steepest: ClassVar[Any]
    jumps: ClassVar[bool]

    def _eval_is_extended_real(self) -> bool:
        return True

    @property
    def place(self) -> Any:
        """The new prediction u = ŷ − c s."""
        return self.args[0] - self.args[1] * self

    def at(self, expr: Any) -> Any:
        """Return an expression in ``PLACE`` and ``holders`` at the root."""
        table = dict(zip(self.holders, self.args[2:], strict=True))
        return expr.subs({PLACE: self.place, **table}, simultaneous=True)

    @property
    def equations(self) -> tuple[Any, Any]:
        """s = e(u) and u = ŷ − c s."""
        table = dict(zip(self.holders, self.args[2:], strict=True))
        error = self.signal.subs(table, simultaneous=True)
        place = self.args[0] - self.args[1] * ROOT
        return sp.Eq(ROOT, error, evaluate=False), sp.Eq(PLACE, place, evaluate=False)

    def fdiff(self, argindex: int = 1) -> Any:
        """Return the derivative of the implicit function."""
        p, c = self.at(self.slope), self.args[1]
        if self.jumps:
            p = steep(self, self.at(self.signal), p)
        if argindex == 1:
            return p / (1 + c * p)
        if argindex == 2:
            return -self * p / (1 + c * p)
        along = tidy(sp.diff(self.signal, self.holders[argindex - 3]))
        return self.at(along) / (1 + c * p)

    @property
    def steepest_slope(self) -> Any:
        """sup ∂s/∂ŷ: L/(1 + c L), and 1/c where e has no steepest place."""
        size, c = self.steepest, self.args[1]
        return 1 / c if size == sp.oo else size / (1 + c * size)


def new_error(signal: Any, place: Any, reach: Any, size: Any, *, steepest: Any) -> Any:
    """Return s = ``signal`` at ``reach`` − ``size``·s in place of ``place``."""
    rest = sorted(signal.free_symbols - {place}, key=str)
    holders = tuple(sp.Symbol(f"x{i}", **s.assumptions0) for i, s in enumerate(rest))
    names = {place: PLACE, **dict(zip(rest, holders, strict=True))}
    made = _made(signal.subs(names, simultaneous=True), holders, steepest)
    return made(reach, size, *rest)


@cache
def _made(signal: Any, holders: tuple[Any, ...], steepest: Any) -> Any:
    slope = tidy(sp.diff(signal, PLACE))
    parts = {
        "signal": signal, "slope": slope, "holders": holders, "steepest": steepest,
        "jumps": signal.has(sp.sign, sp.Piecewise, sp.Heaviside), "nargs": 2 + len(holders),
    }  # fmt: skip
    told = sha256(sp.srepr((signal, holders)).encode()).hexdigest()[:8]  # as str tells them apart
    return type(f"NewError_{told}", (NewErrorBase,), parts)


def roots_of(expr: Any) -> tuple[Any, ...]:
    """Return the roots that an expression holds, in a fixed order."""
    return tuple(sorted(sp.sympify(expr).atoms(NewErrorBase), key=str))


def largest_slope(expr: Any) -> Any:
    """Return sup ∂/∂ŷ of an expression that is linear in its roots, each at its steepest."""
    steepest = expr.replace(
        lambda z: isinstance(z, NewErrorBase), lambda z: z.steepest_slope * z.args[0]
    )
    return sp.Abs(simplified(sp.diff(steepest, sym.y)))
