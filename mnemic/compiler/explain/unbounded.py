"""Whether a stated link has a bound near a dual of zero, where a memory begins."""

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Rule
from mnemic.compiler.sense import undefined


def warning(rule: Rule) -> str | None:
    """Warn of a link that grows without bound towards A = 0, where the memory begins.

    A and its norm ν go to zero together: there a/ν² grows like 1/a, although it is 0 where only a
    is 0. None for any other link, and for a memory whose start is learned.
    """
    link = rule.problem.link
    if rule.problem.spec.retention.link is None or link is None or rule.parameters:
        return None
    towards = {sym.a: sym.a * sym.x, sym.nu: sym.nu * sp.Abs(sym.x)}
    if undefined(link.subs(towards, simultaneous=True), sym.x) != "infinite":
        return None
    stated = rule.problem.spec.retention.link.expr
    return (
        f"The link {stated} grows without bound towards A = 0, where this memory begins: it is "
        "taken as 0 there, and in float32 the gradients of training may be no numbers. Add a small "
        "c above 0 to what you divide by, as in a/(nu**2 + c), or give it a memory of layers "
        "(memory: mlp), whose start is learned."
    )
