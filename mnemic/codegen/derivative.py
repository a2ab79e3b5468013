"""Derivatives of a quantity's expression, as autograd takes them of the printed one."""

from functools import cache
from typing import Any

import sympy as sp

from mnemic.codegen.guards import TINY, may_vanish
from mnemic.codegen.words import in_words
from mnemic.compiler.symbolic import tidy


class NoAdjoint(Exception):
    """A function without a rule for its gradient: what calls it is forward only."""

    def __init__(self, function: str) -> None:
        super().__init__(f"no rule for the gradient of {in_words(function)}")
        self.function = function


class larger(sp.Function):
    """max(a, b): a tie is shared, and a number is not the larger one of a tie."""

    def fdiff(self, argindex: int = 1) -> Any:
        """Return ∂max/∂argument: 1 where it is the larger, else 0; ½ in a tie of no numbers."""
        a, b = self.args if argindex == 1 else self.args[::-1]
        if b.is_number:
            return sp.Piecewise((1, a >= b), (0, True))
        return (1 + sp.sign(a - b)) / 2


class smaller(sp.Function):
    """min(a, b): a tie is shared, and a number is not the smaller one of a tie."""

    def fdiff(self, argindex: int = 1) -> Any:
        """Return ∂min/∂argument: 1 where it is the smaller, else 0; ½ in a tie of no numbers."""
        a, b = self.args if argindex == 1 else self.args[::-1]
        if b.is_number:
            return sp.Piecewise((1, a <= b), (0, True))
        return (1 - sp.sign(a - b)) / 2


class held(sp.Function):
    """What a root is taken of, at least ``TINY``: flat below, and there too. (SymPy moves numbers
    of a condition together: 1 − x² ≥ TINY would be x² ≤ 1, which holds where nothing is left.)"""

    def fdiff(self, argindex: int = 1) -> Any:
        """Return 1 where the argument is more than ``TINY``, else 0."""
        del argindex
        return above(self.args[0])


class above(sp.Function):
    """1 where its argument is more than ``TINY``, else 0."""


def _branched(product: Any) -> Any:
    """Turn a product with factors ``above(x)`` into a branch: its other factors, or 0."""
    flags = [factor for factor in product.args if isinstance(factor, above)]
    others = sp.Mul(*(factor for factor in product.args if not isinstance(factor, above)))
    conditions = [flag.args[0] > TINY for flag in flags]
    return sp.Piecewise((others, sp.And(*conditions)), (0, True))


def _paired(function: Any) -> Any:
    """Return a function that takes max or min of many, two at a time, numbers last."""

    def pair(*args: Any) -> Any:
        ordered = sorted(args, key=lambda a: (bool(a.is_number), sp.default_sort_key(a)))
        found = ordered[0]
        for other in ordered[1:]:
            found = function(found, other)
        return found

    return pair


def _held(root: Any) -> Any:
    """Return a root of a sum as it is printed, its base at least ``TINY``."""
    return held(root.base) ** root.exp


@cache
def derivative(expr: Any, symbol: Any) -> Any:
    """Differentiate to ∂expr/∂symbol; kinks of max, min, abs, sign, branches as PyTorch has them.

    Raises ``NoAdjoint`` for a function whose derivative is not known.
    """
    smooth = expr.replace(lambda x: x.is_Pow and may_vanish(x.base, x.exp), _held)
    smooth = smooth.replace(sp.Max, _paired(larger)).replace(sp.Min, _paired(smaller))
    found = tidy(sp.diff(smooth, symbol))
    unknown = found.atoms(sp.Derivative)
    if unknown:
        raise NoAdjoint(type(min(unknown, key=str).expr).__name__)
    found = found.replace(
        lambda x: x.is_Mul and any(isinstance(f, above) for f in x.args), _branched
    )
    found = found.replace(held, lambda x: sp.Max(x, sp.Float(TINY)))
    return found.replace(larger, sp.Max).replace(smaller, sp.Min)
