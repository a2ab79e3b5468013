"""The symbols of a rule, and the functions that SymPy lacks or prints badly.

Names are those of ``docs/notation.md``; generated code uses the same ones.
"""

from functools import cache
from typing import Any

import sympy as sp

y = sp.Symbol("y", real=True)
"""one coordinate of the prediction ŷ"""
v = sp.Symbol("v", real=True)
"""one coordinate of the value"""
e = sp.Symbol("e", real=True)
"""one coordinate of ŷ − v"""
n = sp.Symbol("n", positive=True)
"""the norm ‖ŷ − v‖"""
kappa = sp.Symbol("kappa", positive=True)
"""‖φ(k)‖²"""
w = sp.Symbol("w", real=True)
"""one entry of the memory W"""
a = sp.Symbol("a", real=True)
"""one entry of the dual A"""
x = sp.Symbol("x", real=True)
"""the argument of a feature map, an activation or an f-divergence"""
s = sp.Symbol("s", real=True)
"""the product k·q of a kept key and a query, times the memory's scale"""
d2 = sp.Symbol("d2", nonnegative=True)
"""‖k − q‖²"""
kq = sp.Symbol("kq", real=True)
"""k·q as it is"""
kk = sp.Symbol("kk", nonnegative=True)
"""‖k‖² of a kept key"""
qq = sp.Symbol("qq", nonnegative=True)
"""‖q‖²"""
d_k = sp.Symbol("d_k", positive=True)
"""the size of keys and queries"""
zeta = sp.Symbol("zeta", real=True)
"""the multiplier of a constraint"""
nu = sp.Symbol("nu", positive=True)
"""a norm of the dual that a link divides by"""

HEAD = sp.Symbol("h", nonnegative=True)
"""the index of a head, from 0"""
HEADS = sp.Symbol("H", positive=True)
"""how many heads there are"""
TIME = sp.Symbol("t", nonnegative=True)
"""the step, from 0"""

NONNEGATIVE = frozenset(
    {"eta", "delta", "Delta", "lam", "l1", "l2", "alpha", "beta", "gamma", "scale", "radius"}
)


class Coefficient(sp.Symbol):
    """The symbol of a coefficient, unequal to any other symbol of the same name."""


@cache
def coefficient(name: str) -> sp.Symbol:
    """Return the symbol of a coefficient; the ones that are sizes by nature are positive.

    Its class tells it apart from the symbols above, so that a coefficient may be called ``a``.
    """
    if name in NONNEGATIVE:
        return Coefficient(name, positive=True)
    return Coefficient(name, real=True)


class sigmoid(sp.Function):
    """1 / (1 + exp(−x))."""

    def fdiff(self, argindex: int = 1) -> Any:
        """Return σ(x) (1 − σ(x))."""
        return sigmoid(self.args[0]) * (1 - sigmoid(self.args[0]))

    def _eval_is_extended_real(self) -> bool:
        return True

    def _eval_is_positive(self) -> bool:
        return True


class round(sp.Function):
    """The nearest integer, ties to even; gradients pass as if it were not there."""

    def fdiff(self, argindex: int = 1) -> Any:
        """Return 1: straight through."""
        return sp.Integer(1)

    def _eval_is_extended_real(self) -> bool:
        return True


class softplus(sp.Function):
    """log(1 + exp(x))."""

    def fdiff(self, argindex: int = 1) -> Any:
        """Return σ(x)."""
        return sigmoid(self.args[0])

    def _eval_is_extended_real(self) -> bool:
        return True

    def _eval_is_positive(self) -> bool:
        return True


class expm1(sp.Function):
    """exp(x) − 1, to full precision at small x."""

    def fdiff(self, argindex: int = 1) -> Any:
        """Return exp(x)."""
        return sp.exp(self.args[0])

    def _eval_is_extended_real(self) -> bool:
        return True


class normal_cdf(sp.Function):
    """The standard normal's distribution function Φ(x), as GELU uses it."""

    def fdiff(self, argindex: int = 1) -> Any:
        """Return the normal density."""
        return sp.exp(-(self.args[0] ** 2) / 2) / sp.sqrt(2 * sp.pi)

    def _eval_is_extended_real(self) -> bool:
        return True
