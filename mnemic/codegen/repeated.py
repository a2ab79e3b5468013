"""Decays of a rule with several steps a token: they act in the first, and coefficients in all.

A decay that is an argument and stands nowhere else is given as 1 to the steps after the first. Any
other is written with ``first``, which is 1 at a token's first step and 0 at the others, so that the
rate or the loss that names the same coefficient sees its value at every step.
"""

from dataclasses import replace
from typing import Any

import sympy as sp

from mnemic.codegen.builder import FIRST
from mnemic.compiler.derive import decays_of
from mnemic.compiler.problem import Scalar
from mnemic.compiler.rule import Rule, takes_steps


def repeated(rule: Rule) -> Rule:
    """Return the rule with its decays written for a token's first step, where that is needed."""
    if not (takes_steps(rule) and (_any_computed(rule) or _named_elsewhere(rule))):
        return rule
    decay, rows = (at_first(x) for x in decays_of(rule.problem))
    seen = rule.seen if rule.seen == 1 else decay
    return replace(rule, decay=decay * rule.retained.decay, row_decay=rows, seen=seen)


def at_first(decay: Any) -> Any:
    """Return a decay at a token's first step and 1 at the others.

    >>> at_first(sp.Rational(9, 10)), at_first(sp.Integer(1))
    ((9/10)**first, 1)
    """
    if decay == 1:
        return decay
    return decay**FIRST if decay.is_positive else 1 + FIRST * (decay - 1)


def spread(rule: Rule) -> tuple[str, ...]:
    """Return the arguments that are 1 after a token's first step (their logarithms 0)."""
    if (rule.decay * rule.row_decay).has(FIRST):
        return ()
    decays = (s for s in rule.scalars if s.name in ("alpha", "beta"))
    return tuple(s.argument for s in decays if s.argument)


def _any_computed(rule: Rule) -> bool:
    """Return whether a decay is no argument: a number, or made of other coefficients."""
    decays = (rule.problem.scalar(name) for name in ("alpha", "beta"))
    return any(_is_computed(decay) for decay in decays)


def _is_computed(decay: Scalar | None) -> bool:
    return decay is not None and decay.argument is None and decay.expr != 1


def _named_elsewhere(rule: Rule) -> bool:
    """Return whether anything but the decay itself names a coefficient of it."""
    decays = {s.symbol for s in rule.scalars if s.name in ("alpha", "beta")}
    link, error = rule.retained.link, rule.error
    parts = [rule.rate, rule.gain, rule.momentum, rule.weight, error.signal, error.slope,
             *rule.applied.expressions, rule.retained.decay, link.expr,
             *rule.problem.keys.values()]  # fmt: skip
    parts.append(rule.problem.value(str(link.scale), link.scale))
    return any(sp.sympify(part).free_symbols & decays for part in parts if part is not None)
