"""Whether the loss has a slope where a prediction meets its value."""

from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Rule
from mnemic.compiler.sense import undefined


def warning(rule: Rule) -> str | None:
    """Warn of a loss whose slope is infinite or 0/0 at ŷ = v; else None.

    The slope of |e| log |e| is sgn(e) (log |e| + 1): it is undefined for a prediction that equals
    its value, as in text padded with zeros.
    """
    if rule.error.constant:
        return None
    at_value = undefined(rule.error.signal.subs(sym.y, sym.v + sym.e), sym.e)
    if at_value is None:
        return None
    return (
        f"The loss has no slope at ŷ = v ({at_value}). Predictions meet their values exactly where "
        "text is padded with zeros and the memory is zero, and what follows may be no number: "
        "write sqrt(e**2 + c), with a small c above 0, for the size of e."
    )
