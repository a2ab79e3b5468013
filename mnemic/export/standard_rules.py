"""A rule as one of the four of ONNX's ``LinearAttention``, found by mathematics.

Its state S [d_k, d_v] is our W transposed; with g ≤ 0 of a head or of each key channel, and β of a
head::

    linear       S ← S + k vᵀ
    gated        S ← exp(g) S + k vᵀ
    delta        S ← S + β k (v − Sᵀ k)ᵀ
    gated_delta  S ← exp(g) S + β k (v − exp(g) Sᵀ k)ᵀ
    o = Sᵀ q
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.canonical import canonical
from mnemic.compiler.compare.changes import general
from mnemic.compiler.compare.entry_form import Form
from mnemic.compiler.compare.matching import STRETCH, Match, match
from mnemic.compiler.compare.solving import Clock
from mnemic.compiler.problem import HEAD, HEADS
from mnemic.compiler.rule import Rule
from mnemic.pipeline import derive

SECONDS: Final = 5.0
"""Processor time that the search for one rule's change of coefficients may take."""

_DECAY: Final = {"retention": {"decay": {"from": "input", "per": "key"}, "order": "before"}}

STANDARD: Final[dict[str, dict[str, Any]]] = {
    "linear": {"bias": "dot"},
    "gated": {"bias": "dot", **_DECAY},
    "delta": {"bias": "l2", "optimizer": {"rate": "token"}},
    "gated_delta": {"bias": "l2", **_DECAY, "optimizer": {"rate": "token"}},
}
"""The operator's update rules as specs of ours, the narrowest first."""


OTHERS: Final = frozenset({HEAD, HEADS, sym.kappa})
"""Symbols of an input that are no coefficients: the head, how many there are, and ‖k‖²."""

_SYMBOL = re.compile(r"_\d+$")


@dataclass(frozen=True)
class Standard:
    """What makes a rule one of the operator's: its attribute and the inputs it is given.

    ``log_decay`` and ``beta`` are None where the update rule takes none; ``per_key`` tells that the
    decay is one of each key channel; v of the operator is ``value`` times ours, q ``query`` times.
    Expressions are in the rule's coefficients, in the head h of H, and in κ = ‖k‖².
    """

    update_rule: str
    log_decay: Any | None
    per_key: bool
    beta: Any | None
    value: Any
    query: Any


def standard(rule: Rule) -> Standard | None:
    """Return how a rule is one of the operator's four; None where none was found.

    Two rules are one where a change of coefficients makes their canonical forms equal, as in
    ``mnemic diff``. It counts where its logarithm of the decay is a real number and nothing is
    divided by what may be 0, whatever the coefficients are.
    """
    if rule.problem.features != sym.x:
        return None
    form = canonical(rule)
    for name, target in _targets().items():
        found = match(form, target, Clock.starting(SECONDS))
        made = None if found is None else _inputs(name, found, rule)
        if made is not None:
            return made
    return None


@cache
def _targets() -> dict[str, Form]:
    named = {name: {"mnemic": 1, "name": "standard", **told} for name, told in STANDARD.items()}
    return {name: canonical(derive(told)) for name, told in named.items()}


def _inputs(name: str, found: Match, rule: Rule) -> Standard | None:
    """Return the operator's inputs from a match; None where one need not be a number."""
    parts: dict[str, set[Any]] = {"value": {_named(found.scale, rule)}}
    for symbol, value in found.change:
        part = "query" if symbol == STRETCH else _SYMBOL.sub("", str(symbol))
        parts.setdefault(part, set()).add(_named(general(symbol, value)[1], rule))
    if any(len(ways) != 1 or None in ways for ways in parts.values()):
        return None
    told = {part: ways.pop() for part, ways in parts.items()}
    decay, heads = told.pop("alpha", None), told
    log_decay = None if decay is None else _logarithm(decay)
    if decay is not None and log_decay is None:
        return None
    every = [*heads.values(), *([] if log_decay is None else [log_decay])]
    varying = {s.symbol: s.per for s in rule.scalars if s.per != "head"}
    if not all(map(_finite, every)) or any(x.free_symbols & varying.keys() for x in heads.values()):
        return None
    of_channels = set() if log_decay is None else log_decay.free_symbols & varying.keys()
    if any(varying[s] != "key" for s in of_channels):
        return None
    value, query = heads.pop("value"), heads.pop("query", sp.Integer(1))
    beta = heads.pop("eta", None)
    return None if heads else Standard(name, log_decay, bool(of_channels), beta, value, query)


def _named(value: Any, rule: Rule) -> Any | None:
    """Return a value in the rule's own symbols, which say what is positive, or else None."""
    value = sp.sympify(value)
    table = {s.name: s.symbol for s in rule.scalars}
    if any(str(s) not in table and s not in OTHERS for s in value.free_symbols):
        return None
    own = {s: table[str(s)] for s in value.free_symbols if s not in OTHERS}
    return value.subs(own, simultaneous=True)


def _logarithm(decay: Any) -> Any | None:
    """Return log α, of an α that is above 0 whatever its coefficients are; else None."""
    if not (decay.is_positive or _positive_of_heads(decay)):
        return None
    return sp.expand_log(sp.log(decay)) if decay.free_symbols else sp.log(decay)


def _positive_of_heads(decay: Any) -> bool:
    """Return whether a decay of the head alone is proved to be above 0, for any head of any number
    of heads: H = h + 1 + as many heads as come behind."""
    if not decay.free_symbols <= {HEAD, HEADS}:
        return False
    before, behind = (sp.Symbol(name, nonnegative=True) for name in ("before", "behind"))
    told = {HEAD: before, HEADS: before + behind + 1}
    return _above_zero(decay.subs(told, simultaneous=True), may_be_zero=False)


def _above_zero(value: Any, *, may_be_zero: bool) -> bool:
    """Return whether f > 0 (or f ≥ 0) is proved where all symbols are at least 0: at once, or since
    f is smooth and rises along one of them from where it is proved, or falls to where it is."""
    if value.is_positive or (may_be_zero and value.is_nonnegative):
        return True
    if not _smooth(value):
        return False
    for symbol in sorted(value.free_symbols, key=str):
        slope = sp.factor(sp.diff(value, symbol))
        if slope.is_nonnegative:
            return _above_zero(value.subs(symbol, 0), may_be_zero=may_be_zero)
        if slope.is_nonpositive:
            end = sp.limit(value, symbol, sp.oo)
            return _above_zero(end, may_be_zero=may_be_zero or bool(slope.is_negative))
    return False


def _smooth(value: Any) -> bool:
    """Return whether an expression is made of functions without jumps and poles where its symbols
    are at least 0."""
    whole = (sp.Add, sp.Mul, sp.exp, sp.Symbol, sp.Number, sp.NumberSymbol)
    for part in sp.preorder_traversal(value):
        if isinstance(part, sp.Pow):
            power = part.exp
            if not (part.base.is_positive or (power.is_integer and power.is_nonnegative)):
                return False
        elif isinstance(part, sp.log):
            if not part.args[0].is_positive:
                return False
        elif not isinstance(part, whole):
            return False
    return True


def _finite(value: Any) -> bool:
    """Return whether nothing is divided by what may be 0, as ‖k‖² may."""
    value = value.subs(sym.kappa, sp.Symbol("kappa", nonnegative=True))
    below = [p.base for p in value.atoms(sp.Pow) if not p.exp.is_nonnegative]
    return all(base.is_positive for base in below)
