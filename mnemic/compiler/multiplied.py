"""An f-divergence W_t = W_{t−1} ∘ g(S_t − ζ): which memories can be multiplied like this.

Such a memory has no dual that could accumulate steps, pass through O or be scaled, and all its
entries start at one number.
"""

from mnemic.compiler.classify import Facts, is_layered
from mnemic.compiler.refused import Refused
from mnemic.compiler.rule import Applied


def check(facts: Facts) -> None:
    """Refuse what would act between the steps of an f-divergence and the memory.

    Raises:
        Refused: several matrices, an interval, an O, or norms.
    """
    if facts.retained.mode != "multiplicative":
        return
    if len(facts.network.matrices) > 1:
        names = ", ".join(matrix.name for matrix in facts.network.matrices)
        raise Refused(
            f"a memory under this f-divergence starts at one number everywhere, so the hidden "
            f"channels of several matrices ({names}) would start alike and learn alike: use one "
            "matrix, or local: kl, whose memory starts from a dual of its own",
            place="retention.local.f-divergence",
        )
    if isinstance(facts.method, Applied) and is_layered(facts.network, facts.method):
        place, what = _between(facts, facts.method)
        raise Refused(
            "an f-divergence multiplies the memory, W = W′ ∘ g(S − ζ), which is derived for the "
            f"plain step of every token, not for {what}: leave this out, or use local: kl or a "
            "Bregman divergence, whose steps add up in a dual",
            place=place,
        )


def _between(facts: Facts, applied: Applied) -> tuple[str, str]:
    """Return the entry in the spec of what comes between step and memory, and what it is."""
    if applied.kind != "identity" or applied.elementwise:
        return "optimizer.method", f"a step of {facts.problem.spec.optimizer.method}"
    if applied.normalize != "none":
        return "retention.normalize", "norms of the memory"
    (matrix,) = facts.network.matrices
    return "optimizer.every", f"the steps of {matrix.every} tokens used at once"
