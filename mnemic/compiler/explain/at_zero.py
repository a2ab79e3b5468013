"""Whether features, similarities and activations have a value and a slope at exactly zero.

Random numbers are never exactly zero, but a text often is: padding is zero, a memory begins at
zero, and a repeated token is at distance zero from itself.
"""

from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.ranges import activation_of
from mnemic.compiler.rule import Rule
from mnemic.compiler.sense import endless, undefined
from mnemic.dsl.memory import Glu, Mlp
from mnemic.dsl.texts import memories


def warning(rule: Rule) -> str | None:
    """Warn of the first expression that is undefined at zero; None if all are defined."""
    return _of_features(rule) or _of_similarity(rule) or _of_activations(rule)


def _of_features(rule: Rule) -> str | None:
    features = rule.problem.features
    if features is None:
        return None
    where = (
        "Channels are exactly zero where text is padded with zeros or an activation such as relu "
        "cuts them, and "
    )
    found = undefined(features, sym.x)
    if found is not None:
        return (
            f"The features are no number at x = 0 ({found}). {where}what follows is no number: "
            "write features that have one there, without a quotient or a logarithm of x."
        )
    slope = undefined(sp.diff(features, sym.x), sym.x)
    if slope != "infinite" or features.has(sp.Abs):  # whose roots are printed flat at zero
        return None
    return (
        f"The features have no slope at x = 0 (infinite). {where}gradients through them are no "
        "numbers: write relu(x) or abs(x) under the root, which are flat there."
    )


def _of_similarity(rule: Rule) -> str | None:
    """Warn of a pair's weight that is undefined at d2 = 0 or at s = 0; else None."""
    similarity = rule.problem.similarity
    places: tuple[tuple[Any, str, str, str], ...] = (
        (sym.d2, "d2", "where a key comes again as the query", "a distance such as d2 + c"),
        (sym.s, "s", "where the key or the query is zero", "a product such as abs(s) + c"),
    )
    for symbol, name, where, instead in places:
        found = None if similarity is None else undefined(similarity, symbol)
        if found is not None:
            return (
                f"The weight of a pair is no number at {name} = 0 ({found}), which {name} is "
                f"{where}, as on text that is padded with zeros, and what follows is no number: "
                f"write {instead}, with a small c above 0, where you divide or take a logarithm."
            )
    return None


def _of_activations(rule: Rule) -> str | None:
    """Warn of an activation without a value, a first or a second derivative at zero.

    A memory of layers takes steps along the first derivative, and training differentiates them.
    """
    told = (
        ("is no number", "what follows is no number"),
        ("has no slope", "the memory's steps have no bound near there"),
        ("has a slope that has none itself", "gradients of the memory's steps have no bound there"),
    )
    for _, memory in memories(rule.problem.spec.memory):
        if isinstance(memory, Mlp | Glu):
            activation = activation_of(memory.activation)
            for order, (what, follows) in enumerate(told):
                slope = sp.diff(activation, sym.x, order)
                found = undefined(slope, sym.x)
                if found is None and order and endless(slope, sym.x):
                    found = "infinite"
                if found is not None and (order == 0 or found == "infinite"):
                    return (
                        f"The memory's activation {memory.activation} {what} at x = 0 ({found}), "
                        "which x is where text is padded with zeros or the memory begins at zero, "
                        f"and {follows}: write one that is smooth there, such as "
                        "sqrt(x**2 + c) for abs(x) under a root, with a small c above 0."
                    )
    return None
