"""What printed expressions keep above zero."""

from typing import Any

from mnemic.compiler import symbols as sym

TINY = 1e-30
"""The least that generated code takes a root or logarithm of, whatever its type."""


def may_vanish(base: Any, power: Any) -> bool:
    """Return whether a root's argument may be 0, or below by rounding: a sum, or a softplus that
    rounds to 0.

    Such a root is taken of its argument or of ``TINY``, whichever is larger, and is flat below
    ``TINY``.
    """
    root = bool(power.is_number and 0 < power < 1)
    return bool(root and ((base.is_Add and not base.is_positive) or isinstance(base, sym.softplus)))
