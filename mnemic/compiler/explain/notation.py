"""Keys, features and decays as equations show them."""

import re
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain import printing
from mnemic.compiler.explain.dialect import Dialect
from mnemic.compiler.kernelised import gate
from mnemic.compiler.rule import Rule


def feature(rule: Rule, d: Dialect, key: str) -> str:
    """Return φ of a key, or the key itself for identity features."""
    plain = rule.problem.features is not None and rule.problem.features == sym.x
    turned = rule.phase and not rule.diagonal
    return key if plain and not turned else d.call("phi", key)


def role_key(rule: Rule, d: Dialect, role: str, index: str) -> str:
    """Return the key of a role."""
    expr = rule.problem.keys[role]
    k = sp.Symbol("k", real=True)
    if expr == k:
        return d.of("k", index)
    names = ("predict", "erase", "write", "carry")
    own = {sp.Symbol(n, real=True): sp.Symbol(role_letter(n), real=True) for n in names}
    shown = _vector(d, expr.subs(own), index)
    return d.wrapped(shown) if not expr.is_Symbol else shown


def role_features(rule: Rule, d: Dialect, role: str, index: str) -> str:
    """Return φ of a role's key, as a row; behind a kernel φ(k) with the role's gate."""
    if rule.kernels is None:
        return d.flipped(feature(rule, d, role_key(rule, d, role, index)))
    key = d.flipped(feature(rule, d, d.of("k", index)))
    return d.factor(gate(rule.problem, role)) + key


def role_letter(role: str) -> str:
    return {"predict": "p", "erase": "r", "write": "s", "carry": "c"}[role]


def _vector(d: Dialect, expr: Any, index: str) -> str:
    """Write an expression of vectors by entry, its coefficients those of the vectors' token."""
    timed = {**d.timed, **dict.fromkeys("kprsc", index == "t")}
    if d.tex:
        shown = printing.latex(expr, timed, times=r" \circ ")
        each = r"(?<![\\A-Za-z])([kprsc])(?![A-Za-z_])"
    else:
        shown, each = printing.text(expr, timed).replace("·", " ∘ "), r"\b([kprsc])\b"
    if index == "t":
        return shown
    shown = re.sub(r"_t(?![A-Za-z])", "_i", shown.replace("ₜ", "ᵢ").replace(",t}", ",i}"))
    return re.sub(each, lambda m: d.of(m[1], index), shown)


def value(rule: Rule, d: Dialect, index: str) -> str:
    """Return the value as it is written."""
    expr = rule.problem.keys["value"]
    if expr == sym.v:
        return d.of("v", index)
    shown = _vector(d, expr, index)
    return d.wrapped(re.sub(r"(?<![\\\w])v(?![\w{])", d.of("v", index), shown))


def with_value(rule: Rule, d: Dialect) -> str:
    """Write how the written value is made of v, or nothing where it is v itself."""
    if rule.problem.keys["value"] == sym.v:
        return ""
    comma = d.sign(",  ", r",\quad ")
    if rule.window > 1:
        arrow = d.sign("←", r"\leftarrow")
        return f"{comma}{d.of('v', 'i')} {arrow} {value(rule, d, 'i')}"
    return f"{comma}v = {value(rule, d, 't')}"


def per(rule: Rule, expr: Any) -> str:
    """Return whether an expression varies by ``head``, ``key``, ``value`` or ``outer``."""
    ways = {s.per for s in rule.scalars if expr.has(s.symbol)}
    if "outer" in ways or {"key", "value"} <= ways:
        return "outer"
    return next((way for way in ("key", "value") if way in ways), "head")


def acted(rule: Rule, d: Dialect, decay: Any, row_decay: Any, memory: str) -> str:
    """Write a decay acting on a memory: a scalar, Diag on the side of the keys or of the values."""
    if rule.diagonal and rule.phase:
        decay = sp.Mul(decay, sp.exp(sp.Symbol("i") * rule.problem.value("phase")), evaluate=False)
    if decay == 1 and row_decay == 1:
        return memory
    if rule.diagonal:
        return f"{d.expr(decay)}{d.times}{memory}"
    left = "" if row_decay == 1 else d.call("Diag", d.expr(row_decay)) + " "
    match per(rule, decay):
        case "key":
            return f"{left}{memory} {d.call('Diag', d.expr(decay))}"
        case "value":
            return f"{left}{d.call('Diag', d.expr(decay))} {memory}"
        case "outer":
            return f"{left}{d.wrapped(d.expr(decay))}{d.times}{memory}"
    return left + d.factor(decay) + memory
