"""Derivatives of a quantity's expression, as autograd takes them of the printed one."""

from functools import cache
from typing import Any

import sympy as sp

from mnemic.codegen.adjoint.errors import NoAdjoint
from mnemic.compiler.symbolic import tidy


class larger(sp.Function):
    """max(a, b): a tie is shared, and a number is not the larger one of a tie."""

    def fdiff(self, argindex: int = 1) -> Any:
        """1 where the argument is the larger one."""
        a, b = self.args if argindex == 1 else self.args[::-1]
        if b.is_number:
            return sp.Piecewise((1, a >= b), (0, True))
        return (1 + sp.sign(a - b)) / 2


class smaller(sp.Function):
    """min(a, b), in the same way."""

    def fdiff(self, argindex: int = 1) -> Any:
        """1 where the argument is the smaller one."""
        a, b = self.args if argindex == 1 else self.args[::-1]
        if b.is_number:
            return sp.Piecewise((1, a <= b), (0, True))
        return (1 - sp.sign(a - b)) / 2


def _paired(function: Any) -> Any:
    """max or min of many as one of two at a time, numbers last."""

    def pair(*args: Any) -> Any:
        ordered = sorted(args, key=lambda a: (bool(a.is_number), sp.default_sort_key(a)))
        found = ordered[0]
        for other in ordered[1:]:
            found = function(found, other)
        return found

    return pair


@cache
def derivative(expr: Any, symbol: Any) -> Any:
    """∂expr/∂symbol; the kinks of max, min, abs, sign and branches as PyTorch has them.

    Raises ``NoAdjoint`` for a function whose derivative is not known.
    """
    smooth = expr.replace(sp.Max, _paired(larger)).replace(sp.Min, _paired(smaller))
    found = tidy(sp.diff(smooth, symbol))
    unknown = found.atoms(sp.Derivative)
    if unknown:
        raise NoAdjoint(type(min(unknown, key=str).expr).__name__)
    return found.replace(larger, sp.Max).replace(smaller, sp.Min)
