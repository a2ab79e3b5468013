"""Fits over key–value pairs written out: the weight of a pair, its decay, the ridge."""

from collections.abc import Mapping
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.coordinates import PARAMETERS, Coordinates
from mnemic.compiler.compare.entry_form import Form, tidy_entry
from mnemic.compiler.compare.tags import feature_functions, feature_tags
from mnemic.compiler.rule import KeyValuePairs

PAIR = (sym.kq, sym.kk, sym.qq, sym.d_k)


def _moved(rule: KeyValuePairs, at: Coordinates) -> tuple[Any, ...]:
    """Return η and the entries of the vector that moves stored keys; nothing where none moves."""
    if rule.fit.carry is None:
        return ()
    rate, carry = at.at(sp.sympify(rule.rate), 0, 0), at.features("carry", "")
    still = rate == 0 or all(entry == 0 for entry in carry)
    return () if still else (rate, *carry)


def fitted(rule: KeyValuePairs, values: Mapping[Any, Any]) -> Form:
    """Return a pair's logit (or its weight), the logarithm of its decay, and the ridge.

    Where two fits agree in these they agree in everything, their windows being the same.
    """
    at = Coordinates(rule, values)
    logs = rule.fit.similarity.logit is not None and rule.fit.kind != "interpolation"
    score = rule.fit.similarity.score if logs else rule.fit.similarity.weight
    output = tuple(at.at(sp.sympify(part), 0, 0) for part in (score, rule.decay, rule.fit.ridge))
    moved = _moved(rule, at)
    output += moved
    value = at.resolved(rule.problem.keys["value"])
    tags = (
        f"fit {rule.fit.kind}",
        f"weights by {'logarithm' if logs else 'value'}",
        f"pairs {rule.window if rule.window > 1 else 'all'}",
        f"value {value}",
        *(("keys move",) if moved else ()),
        *feature_tags(rule),
    )
    form = Form(
        (), output, (), (), tuple(sorted(tags)), PAIR, PARAMETERS, feature_functions(rule, at)
    )
    return form.mapped(tidy_entry)
