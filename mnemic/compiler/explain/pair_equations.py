"""Equations of a fit over key–value pairs: the weights, what is solved, the read-out."""

from collections.abc import Iterator

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.dialect import Dialect
from mnemic.compiler.explain.notation import feature, role_key
from mnemic.compiler.rule import Fit, KeyValuePairs
from mnemic.dsl.memory import Nonparametric


def pairs(rule: KeyValuePairs, d: Dialect) -> Iterator[tuple[str, str]]:
    """Write the lines of a fit."""
    fit = rule.fit
    if fit.kind == "interpolation":
        yield from _interpolation(fit, d)
        return
    if fit.carry is not None:
        yield "keys", _moved(rule, d)
    yield "weights", _weights(rule, fit, d)
    over = _sum(rule, d)
    w, v = d.of("w", "i"), d.of("v", "i")
    if fit.kind == "mean":
        yield "read-out", f"{d.of('y')} = {over} {w} {v} / {over} {w}"
        return
    apart = f"({_cached_key(fit, d)} {d.minus} {d.of('q')})"
    most = d.sign("max w", r"\max w")
    bars = ("‖", "‖²") if not d.tex else (r"\lVert ", r"\rVert^2")
    residual = f"{bars[0]}{v} {d.minus} a {d.minus} B {apart}{bars[1]}"
    half = d.sign("½", r"\tfrac12")
    slope = f"{half} {d.factor(fit.ridge)}{bars[0]}B{bars[1]}"
    argmin = d.sign("argmin", r"\arg\min")
    yield "memory", f"a, B = {argmin} {over} ({w}/{most}) {half} {residual} + {slope}"
    yield "read-out", f"{d.of('y')} = a"


def _cached_key(fit: Fit, d: Dialect) -> str:
    """Write a kept key, as it was written or as later tokens have moved it."""
    return d.of("k" if fit.carry is None else "k~", "i")


def _moved(rule: KeyValuePairs, d: Dialect) -> str:
    """Write the step that every token takes with the keys before it."""
    key, carry = d.of("k~", "i"), feature(rule, d, role_key(rule, d, "carry", "t"))
    step = d.wrapped(f"I {d.minus} {d.factor(rule.rate)}{carry} {d.flipped(carry)}")
    begun = d.sign(",  i < t;  k̃ₜ = ", r"\ (i < t),\quad \tilde k_t = ")
    arrow = d.sign(" ← ", r" \leftarrow ")
    return f"{key}{arrow}{step} {key}{begun}{feature(rule, d, d.of('k'))}"


def _weights(rule: KeyValuePairs, fit: Fit, d: Dialect) -> str:
    shown = f"{d.of('w', 'i')} = {d.expr(fit.similarity.stated)}"
    if rule.decay != 1:
        product = d.sign("Π_(j=i+1..t)", r"\prod_{j=i+1}^{t}")
        gate = d.expr(rule.decay).replace("ₜ", "ⱼ").replace("_{t}", "_{j}")
        shown += f" {product} {gate}"
    return shown + _where(rule, fit, d, _cached_key(fit, d), d.of("q"))


def _where(rule: KeyValuePairs, fit: Fit, d: Dialect, key: str, query: str) -> str:
    """Write what s and d² stand for."""
    found = []
    if fit.similarity.stated.has(sym.s):
        memory = rule.problem.spec.memory
        scale = memory.scale if isinstance(memory, Nonparametric) else 1.0
        factor = "" if scale is None or scale == 1 else f"{scale:g} "
        under = d.sign("/√d_k", r"/\sqrt{d_k}") if scale is None else ""
        found.append(f"s = {factor}{d.flipped(key)} {query}{under}")
    if fit.similarity.stated.has(sym.d2):
        size = d.sign(f"‖{key} − {query}‖²", rf"\lVert {key} - {query}\rVert^2")
        found.append(f"{d.sign('d²', 'd^2')} = {size}")
    return "".join(d.sign(",  ", r",\quad ") + line for line in found)


def _sum(rule: KeyValuePairs, d: Dialect) -> str:
    first = f"t-{rule.window - 1}" if rule.window > 1 else "1"
    if d.tex:
        return rf"\sum_{{i={first}}}^{{t}}"
    return f"Σ_(i={first.replace('-', '−')}..t)"


def _interpolation(fit: Fit, d: Dialect) -> Iterator[tuple[str, str]]:
    kappa, inverse = d.sign("κ", r"\kappa"), d.sign("⁻¹", "^{-1}")
    factor = d.of("L", "t")
    shown = d.expr(fit.similarity.stated)
    parts = []
    if fit.similarity.stated.has(sym.s):
        parts.append(f"s = {d.flipped('k')} q")
    if fit.similarity.stated.has(sym.d2):
        parts.append(d.sign("d² = ‖k − q‖²", r"d^2 = \lVert k - q\rVert^2"))
    where = "".join(d.sign(",  ", r",\quad ") + part for part in parts)
    yield "weights", f"{kappa}(k, q) = {shown}{where}"
    ridge = "" if fit.ridge == 0 else f" + {d.factor(sp.sympify(fit.ridge))}I"
    keys = d.of("K")
    yield "memory", f"{factor} {d.flipped(factor)} = {kappa}({keys}, {keys}){ridge}"
    left = d.flipped(d.wrapped(f"{factor}{inverse} {d.of('V')}"))
    yield "read-out", f"{d.of('y')} = {left} {factor}{inverse} {kappa}({keys}, {d.of('q')})"
