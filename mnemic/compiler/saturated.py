"""Functions that saturate long before an exponential inside them overflows.

tanh(eᶻ) is 1 from z = 3 on, but from z = 89 on its slope in float32, 0·∞, is no number.
"""

from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym

SATURATING = (sp.tanh, sp.atan, sp.erf, sym.sigmoid, sym.normal_cdf)
"""Functions with an end on either side."""

END = 60
"""An exponent at which all have come to their ends, and exponentials are far from overflow."""


def saturated(expression: Any) -> Any:
    """Clamp an exponent inside a function that has saturated by then.

    >>> z = sp.Symbol("z", real=True)
    >>> saturated(sp.tanh(2 * sp.exp(z))), saturated(sp.exp(1 - sp.cosh(z)))
    (tanh(2*exp(Min(60, z))), exp(1 - cosh(Min(60, Abs(z)))))
    >>> saturated(sp.exp(sp.exp(z)))  # has no end where z grows
    exp(exp(z))
    """
    ends = isinstance(expression, SATURATING)
    if not (ends or isinstance(expression, sp.exp)):
        return expression
    inner = expression.args[0]
    number, grows = (inner - inner.as_coeff_Add()[0]).as_coeff_Mul()
    if not (isinstance(grows, sp.exp | sp.cosh) and (ends or number.is_negative)):
        return expression
    z = grows.args[0]
    if z.is_number or z.is_nonpositive:
        return expression
    held = grows.func(sp.Min(z if isinstance(grows, sp.exp) else sp.Abs(z), END))
    return expression.func(inner.subs(grows, held))
