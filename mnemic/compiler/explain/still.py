"""Whether a memory can leave zero: its first step is the error at a prediction of zero."""

from mnemic.compiler import symbols as sym
from mnemic.compiler.error_signal import RESIDUAL
from mnemic.compiler.numbers import vanishes
from mnemic.compiler.rule import Rule, starts_at_zero


def warning(rule: Rule) -> str | None:
    """Warn of a memory that starts at zero and stays there; else None."""
    if rule.error.constant or not starts_at_zero(rule):
        return None
    if not vanishes(rule.error.signal.subs(sym.e, RESIDUAL).subs(sym.y, 0)):
        return None
    return (
        "The memory starts at zero, where this loss has no slope whatever the value is: it stays "
        "there, and every output is zero. Let the loss compare ŷ with v, as e**2 does."
    )
