"""How long the first steps of coupled layers are: ‖∂M/∂W‖² at a layer's start, in numbers."""

import math
import random
from typing import Final

from mnemic.compiler.explain.at_start import Started, Untold, Vector, dot
from mnemic.compiler.explain.key_sizes import key_size
from mnemic.compiler.network import ERROR
from mnemic.compiler.rule import Rule

KEYS: Final = 4
TURNS: Final = 100


def jacobian(rule: Rule) -> float | None:
    """Return the largest ‖∂M/∂W‖² at some random keys where a layer starts.

    Features are drawn in any direction, with as many channels as keys and the largest length that
    a key's features can have. Where φ is not the identity that is longer than for most keys, like
    ‖φ‖² in the bound of a linear memory.

    With e pulled back to the rows δ_m of each matrix and its keys a_m, (J Jᵀ)_ij is
    Σ_m ‖a_m‖² δ_m(e_i)·δ_m(e_j); its largest eigenvalue is how much of an error a step of rate one
    takes away along its own key. ``None`` where keys have no bound, or a start cannot be told.
    """
    length = key_size(rule).high
    if not math.isfinite(length):
        return None
    try:
        start = Started(rule, random.Random(0))
        return max(_largest(_gram(rule, start, math.sqrt(length))) for _ in range(KEYS))
    except Untold:
        return None


def _gram(rule: Rule, start: Started, length: float) -> list[Vector]:
    """Return J Jᵀ at a random key."""
    network = rule.network
    at = start.run(network.nodes, start.at_a_key(length))
    channels = range(len(at[network.output]))
    pulled = [
        start.run(network.backward.nodes, {**at, ERROR: [float(i == j) for j in channels]})
        for i in channels
    ]
    outer = network.backward.outer.values()

    def entry(left: dict[str, Vector], right: dict[str, Vector]) -> float:
        parts = (dot(left[a], left[a]) * dot(left[d], right[d]) for d, a in outer)
        return math.fsum(parts)

    return [[entry(left, right) for right in pulled] for left in pulled]


def _largest(gram: list[Vector]) -> float:
    """Return the largest eigenvalue of a positive semidefinite matrix, by powers."""
    x, size = [1.0 + i for i in range(len(gram))], 0.0
    for _ in range(TURNS):
        x = [dot(row, x) for row in gram]
        size = math.sqrt(dot(x, x))
        if not size:
            return 0.0
        x = [z / size for z in x]
    return size
