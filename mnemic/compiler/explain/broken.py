"""Whether the loss jumps: the gradient does not see a jump, so no step accounts for it."""

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.jumps import jump
from mnemic.compiler.rule import Rule

SHOWN = {sym.e: "ŷ − v", sym.n: "‖ŷ − v‖", sym.y: "ŷ"}


def warning(rule: Rule) -> str | None:
    """Warn of a loss that is not continuous in the prediction; else None.

    Jumps of ``round`` do not count: the language defines its slope as one.
    """
    loss = rule.problem.loss
    if loss.has(sym.y, sym.v):
        loss = loss.subs(sym.e, sym.y - sym.v)
    along = next((s for s in SHOWN if loss.has(s)), None)
    if along is None:
        return None
    place = jump(loss, along, (sp.S.Zero if along == sym.n else -sp.oo, sp.oo))
    if place is None:
        return None
    given = sorted(map(str, loss.free_symbols - {along}))
    where = f", with {', '.join(given)} = 0.7" if given else ""
    return (
        f"The loss jumps at {SHOWN[along]} = {sp.N(place, 3)}{where}. No gradient sees a jump: "
        "steps follow the slopes on either side, as of a loss without it. Let the pieces meet, as "
        "where(abs(e) > 1, abs(e) - 1/2, e**2/2) does."
    )
