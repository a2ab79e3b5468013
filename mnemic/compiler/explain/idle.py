"""Coefficients that a rule takes as arguments although they have no effect."""

from dataclasses import fields, is_dataclass
from typing import Any

import sympy as sp

from mnemic.compiler.problem import Scalar
from mnemic.compiler.rule import KeyValuePairs, Moments, Rule
from mnemic.compiler.symbols import coefficient

STEP = ("error", "rate", "gain", "momentum", "applied")
"""The parts of a rule that a rate of zero leaves without effect."""

KEPT = ("decay", "row_decay", "seen", "retained")

APART = ("bonus", "levels", "phase")
"""Coefficients of the read-out and of keys, as are those of features, which no equation holds."""


def idle(rule: Rule) -> tuple[Scalar, ...]:
    """Return the arguments that no equation of the rule reads: their projections get no gradient.

    Under a rate of zero these are all that only steps read: θ, thresholds, weights, gates of keys.
    """
    seen, fades = _symbols([getattr(rule, name) for name in KEPT]), False
    match rule:
        case Moments(solution=solution):
            seen, fades = seen | _symbols(solution), solution.fades
        case KeyValuePairs(fit=fit):
            seen |= _symbols(fit)
    if writes(rule):
        gates = [coefficient("gamma")] if rule.gamma or fades else []
        unread = ("predict", "erase") if rule.error.constant else ()
        keys = [key for role, key in rule.problem.keys.items() if role not in unread]
        seen |= _symbols([getattr(rule, name) for name in STEP] + gates + keys)
    places = rule.problem.spec.placed_coefficients()
    apart = {name for name, where, _ in places if where.startswith("features")} | {*APART}
    seen |= {s.symbol for s in rule.scalars if s.name in apart or s.name.startswith("scale")}
    seen = _behind(rule, seen)
    return tuple(s for s in rule.scalars if s.argument is not None and s.symbol not in seen)


def _behind(rule: Rule, seen: set[Any]) -> set[Any]:
    """Return the symbols read, and those that the expressions of coefficients among them read."""
    found = {name for s in rule.scalars if s.symbol in seen for name in _symbols(s.expr)}
    return seen if found <= seen else _behind(rule, seen | found)


def writes(rule: Rule) -> bool:
    """Return whether a token changes the memory other than by decay."""
    return isinstance(rule, Moments | KeyValuePairs) or rule.rate != 0


def warning(rule: Rule) -> str | None:
    """Say what has no effect: coefficients that no equation reads, a rate of 0; else None."""
    found = [s.name for s in idle(rule)]
    has = "has" if len(found) == 1 else "have"
    also = f"{', '.join(found)} {has} no effect, and what would make it learns nothing."
    if not writes(rule):
        told = "The rate is 0: nothing is written, and the memory stays what it starts as"
        return f"{told}; {also}" if found else f"{told}."
    return f"No equation reads a coefficient: {also}" if found else None


def _symbols(part: Any) -> set[Any]:
    """Return every symbol in an expression, or in the expressions that a part holds."""
    if isinstance(part, sp.Basic):
        return set(part.free_symbols)
    if isinstance(part, tuple | list):
        return set().union(*map(_symbols, part))
    if is_dataclass(part) and not isinstance(part, type):
        return set().union(*(_symbols(getattr(part, f.name)) for f in fields(part)))
    return set()
