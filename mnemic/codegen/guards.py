"""What printed expressions keep above zero."""

from typing import Any

TINY = 1e-30
"""The least that generated code takes a root or logarithm of, whatever its type."""


def may_vanish(base: Any, power: Any) -> bool:
    """Return whether a root is one of a sum that may be 0 or, by rounding, below: it is taken of
    the sum or of ``TINY``, whichever is larger, and flat where the sum is smaller."""
    root = bool(power.is_number and 0 < power < 1)
    return bool(base.is_Add and root and not base.is_positive)
