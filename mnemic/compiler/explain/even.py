"""Whether the weights of kept pairs can differ for the keys and queries that the block makes."""

import math

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Rule
from mnemic.dsl.memory import Nonparametric

WIDTH = 64
"""Channels of a head whose block does not say."""

PLACES = (-1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0)
"""Cosines of key and query at which weights are compared: even functions agree at both ends."""

APART = 2.0
"""How many times as much the nearest key weighs as the farthest, at least, to be no plain mean."""


def warning(rule: Rule) -> str | None:
    """Warn where unit vectors leave s = k·q/√d_k, and with it all weights, nearly the same.

    From k = −q to k = q this s changes by only 2/√d_k. With entries of variance one it would vary
    by about ±1 from key to key.
    """
    problem, block = rule.problem, rule.problem.spec.block
    memory, stated = problem.spec.memory, problem.similarity
    if not isinstance(memory, Nonparametric) or stated is None or block.qk_norm != "l2":
        return None
    if memory.scale is not None or stated.free_symbols - {sym.s}:
        return None
    width, length = block.key_dim or WIDTH, abs(block.scale or 1.0)
    most = length / math.sqrt(width)
    weights = [sp.N(stated.subs(sym.s, most * place)) for place in PLACES]
    if not all(x.is_real and x > 0 for x in weights) or max(weights) >= APART * min(weights):
        return None
    return (
        "All pairs weigh nearly the same: keys and queries are unit vectors (block.qk_norm: l2), "
        f"so s = k·q/√d_k lies within ±{most:.3g} for {width} channels, and no pair weighs more "
        f"than {float(max(weights) / min(weights)):.3g} times another. Write memory.scale: "
        f"{math.sqrt(width):.3g}, √d_k, which gives s the spread that it has for entries of size "
        "one, or block.qk_norm: none."
    )
