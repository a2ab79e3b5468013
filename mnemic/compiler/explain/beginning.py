"""How steep a memory's norms are where a layer starts: a forward pass of the network, in numbers.

LN(z) has the slope 1/√(s² + ε) in z, where s² is the variance of z's entries. A step along it
changes z, relative to its own size, by η/(s² + ε). So from a z near zero the first step is so long
that no later one changes its result: the memory remembers its first chunk and no other.
"""

import math
import random
from typing import Final

from mnemic.compiler.explain.at_start import EPSILON, Started, Untold, variance
from mnemic.compiler.network import Norm
from mnemic.compiler.rule import Rule

STEEP: Final = 30.0
"""A slope from here on counts as steep: a tenth of the 316 that it has at zero."""
KEYS: Final = 4


def warning(rule: Rule) -> str | None:
    """Warn where a layer with this rule starts with a steep norm; else ``None``."""
    slope = steepest(rule)
    if slope is None or slope < STEEP:
        return None
    return (
        f"Where a layer starts the norm's input is next to nothing and the norm's slope {slope:.0f}"
        " (1/√ε is 316): the first step is so long that later ones hardly move the memory, and only"
        f" the first chunk is remembered. {_mend(rule)}"
    )


def _mend(rule: Rule) -> str:
    if rule.kernels is not None:
        return (
            "Behind a kernel the memory starts without pairs, so that an activation of 0 at 0 gives"
            " the norm a zero: take finite features, no norm, or an activation that is not 0 there."
        )
    return "Let the link, the scale and the activations give the norm more than √ε = 0.003."


def steepest(rule: Rule) -> float | None:
    """Return the largest slope of a norm at the start, of some unit keys.

    ``None`` without a norm, and where a start cannot be told in numbers.
    """
    if not rule.network.normed:
        return None
    try:
        start = Started(rule, random.Random(0))
        least = min(_least(rule, start) for _ in range(KEYS))
    except Untold:
        return None
    return 1 / math.sqrt(least + EPSILON)


def _least(rule: Rule, start: Started) -> float:
    """Return the least variance that a norm of the network is given for one random key."""
    found = start.run(rule.network.nodes, start.at_a_key())
    return min(variance(found[n.source]) for n in rule.network.nodes if isinstance(n, Norm))
