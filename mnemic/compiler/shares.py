"""Levels of a Fenwick tree: which rules have a state that is a sum of what their tokens wrote.

Where W_t = T_t W_{t−1} + C_t, with T_t linear and free of W, the memory is Σ_s T_t ⋯ T_{s+1} C_s:
each token's share of it evolves by itself, and a read-out may weight shares separately. Buckets are
those of the tree's prefix: with positions counted from zero, t sees s at the level of the highest
binary digit in which they differ (level 0 is t itself), so one memory per level is enough.
"""

from mnemic.compiler.classify import Facts, blocker, is_layered
from mnemic.compiler.retention import Refused
from mnemic.compiler.rule import Applied, LeastSquares


def check(facts: Facts) -> None:
    """Refuse levels of a memory that is no sum of what its tokens wrote, with the reason."""
    if facts.problem.spec.readout.levels is None:
        return
    found = reason(facts)
    if found is not None:
        raise Refused(f"readout.levels weighs shares of what was written, and {found}")


def reason(facts: Facts) -> str | None:
    """Say why the memory is no sum of what its tokens wrote; None if it is one."""
    error, method = facts.error, facts.method
    if isinstance(method, LeastSquares):
        return "an exact minimiser is solved anew from all pairs: it has no steps to share out"
    layers = isinstance(method, Applied) and is_layered(facts.network, method)
    if layers or not facts.linear:
        return "the memory is not linear in its parameters, so shares of it do not add up"
    if facts.retained.mode != "dual" or not facts.retained.link.identity:
        return f"{blocker(facts)}, so the links of shares do not add up to the link of their sum"
    if not error.constant and not error.affine:
        return (
            f"e = {error.signal} is not affine in ŷ: what a token writes depends on all that was "
            "written before, and has no share of its own"
        )
    return None
