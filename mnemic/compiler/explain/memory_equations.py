"""Equations of the memory itself: the dual, the link, the read-out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.dialect import Dialect
from mnemic.compiler.explain.network_equations import NetworkEquations
from mnemic.compiler.explain.notation import acted, feature, role_features, role_key, value
from mnemic.compiler.retention import Link
from mnemic.compiler.rule import Levels, Rule
from mnemic.compiler.symbolic import simplified


def linked(rule: Rule) -> bool:
    """Return whether the state of a rule is a dual, and W its link."""
    return rule.retained.mode == "dual" and not rule.retained.link.identity


def memory_name(rule: Rule, d: Dialect, index: str) -> str:
    """Write A where the memory has a link, else W."""
    return d.of("A" if linked(rule) else "W", index)


def dual(rule: Rule, d: Dialect) -> Iterator[tuple[str, str]]:
    """Yield the lines by which a token moves the state: A, or W where it is carried itself."""
    step = _step(rule, d)
    match rule.retained.mode:
        case "multiplicative":
            kept = acted(rule, d, rule.decay, rule.row_decay, d.of("W", "t-1"))
            inner = step.removeprefix("+ ").strip()
            yield "memory", f"{d.of('W')} = {kept}{d.times}{d.call('g', inner)}"
        case "prox":
            kept = acted(rule, d, rule.decay, rule.row_decay, last_dual(rule, d))
            yield "dual", f"{d.of('A')} = {kept} {step}"
        case _:
            kept = acted(rule, d, rule.decay, rule.row_decay, last_dual(rule, d))
            name = "dual" if linked(rule) else "memory"
            yield name, f"{memory_name(rule, d, 't')} = {kept} {step}"


def last_dual(rule: Rule, d: Dialect) -> str:
    """Write what the step starts from: A, ∇R(W) where W alone is kept, W without a link."""
    if rule.retained.mode != "prox":
        return memory_name(rule, d, "t-1")
    return mirrored(rule, d, d.of("W", "t-1")) if rule.anchor == 1 else d.of("A", "t-1")


def seen_memory(rule: Rule, d: Dialect, row_decay: Any) -> str:
    """Write the memory that the gradient sees: W, or what the decay leaves of it.

    The decay acts on the dual, so behind a link the memory is the link of a decayed dual. Where
    only W is kept, the map back from the dual leaves out the penalty, which comes with a step.
    """
    found, seen = rule.retained, rule.seen
    if rule.kernels is not None and rule.kernels.predict.normalised:
        seen = sp.Integer(1)  # of rows over their sums the step's own decay cancels
    plain = found.mode == "multiplicative" or found.link.identity
    plain |= found.mode == "prox" and found.link.normaliser == "none" and found.mirror == sym.w
    if plain or (seen == 1 and row_decay == 1):
        return acted(rule, d, seen, row_decay, d.of("W", "t-1"))
    decayed = acted(rule, d, seen, row_decay, last_dual(rule, d))
    if found.mode == "prox" and (found.link.normaliser == "none" or found.first is not None):
        return d.sign("(∇R)⁻¹", r"(\nabla R)^{-1}") + f"({decayed})"
    return d.call("link", decayed)


def mirrored(rule: Rule, d: Dialect, memory: str) -> str:
    """Return ∇R(W)."""
    if rule.retained.mirror == sym.w:
        return memory
    return d.sign("∇R", r"\nabla R") + f"({memory})"


def _step(rule: Rule, d: Dialect) -> str:
    gain = d.factor(rule.gain)
    if rule.momentum is None:
        factor = d.factor(simplified(rule.gain * rule.rate))
        return f"{d.minus} {factor}{d.of('G')}"
    step = f"+ {gain}{d.of('S')}"
    if rule.momentum_on == "write":
        erase = role_features(rule, d, "erase", "t")
        taken = d.factor(simplified(rule.gain * rule.rate * rule.error.slope))
        step += f" {d.minus} {taken}{d.of('y^')} {erase}"
    return step


def link(rule: Rule, d: Dialect) -> Iterator[tuple[str, str]]:
    """Yield how W comes from the dual, entry by entry."""
    found, mode = _resolved(rule), rule.retained.mode
    if mode == "multiplicative":
        shown = f"w:  {_stationary(found, d)}" if found.expr is None else d.expr(found.expr)
        tail = _constraint(found, d) if found.normaliser == "root" else ""
        yield "link", f"{d.call('g', 'a')} = {shown}{tail}"
    elif not found.identity:
        yield "link", _link(found, d)


def _resolved(rule: Rule) -> Link:
    """Return the link with the fixed coefficients of its constraint put in."""
    found = rule.retained.link
    table = {s.symbol: s.expr for s in rule.scalars}
    return replace(found, scale=sp.sympify(found.scale).subs(table))


def _link(found: Link, d: Dialect) -> str:
    left, entry = d.of("W"), d.of("A")
    where = d.sign(",  a = Aₜ entry by entry", r",\quad a = A_t")
    if found.expr is None:
        tail = _constraint(found, d) if found.normaliser == "root" else ""
        return f"{left}: {_stationary(found, d)}{where}{tail}"
    body = d.expr(found.expr)
    match found.normaliser:
        case "softmax":
            inner = entry if found.expr == sym.a else body
            over = d.sign(f" over {found.over}", rf"\ \text{{over {found.over}}}")
            over = "" if found.over == "all" else over
            return f"{left} = {d.factor(found.scale)}{d.call('softmax', inner)}{over}"
        case "norm":
            size = d.sign(f"ν = ‖Aₜ‖_{found.power}", rf"\nu = \lVert A_t\rVert_{{{found.power}}}")
            return f"{left} = {body}{where}, {size}"
        case "ball":
            free = found.expr != sym.a
            entry = d.of("U") if free else entry
            size = d.sign(f"‖{entry}‖", rf"\lVert {entry}\rVert")
            shown = f"{left} = {entry} min(1, {d.expr(found.scale)}/{size})"
            comma = d.sign(",  ", r",\quad ")
            return shown + (f"{comma}{entry} = {body}{where}" if free else "")
        case "root":
            return f"{left} = {body}{where}{_constraint(found, d)}"
    return f"{left} = {body}{where}"


def _stationary(found: Link, d: Dialect) -> str:
    """Write slope(w) = a, or a − ζ, of which a link without a closed form is the root."""
    dual = sym.a - sym.zeta if found.normaliser == "root" else sym.a
    return d.expr(sp.Eq(found.slope, dual, evaluate=False))


def _constraint(found: Link, d: Dialect) -> str:
    """Write which sums a multiplier holds: of the whole memory, of each row or of each column."""
    total = d.sign("Σ W", r"\sum W")
    zeta = d.sign("ζ", r"\zeta")
    line = found.over.removesuffix("s")
    each = d.sign(f" of each {line}", rf"\ \text{{of each {line}}}") if found.over != "all" else ""
    return d.sign(",  ", r",\quad ") + f"{zeta}{each}: {total} = {d.expr(found.scale)}"


def readout(rule: Rule, d: Dialect) -> Iterator[tuple[str, str]]:
    """Yield the equations of the read-out, and of its divisor if it has one."""
    spec = rule.problem.spec
    query = feature(rule, d, d.of("q"))
    if getattr(spec.memory, "slots", None):
        keys = acted(rule, d, rule.decay, sp.Integer(1), d.of("K", "t-1"))
        flipped = d.flipped(role_key(rule, d, "write", "t"))
        yield "slots", f"{d.of('K')} = {keys} + {d.of('k')} {flipped}"
        query = d.call("softmax", f"{d.flipped(d.of('K'))} {d.of('q')}")
    memory = {"after": d.of("W"), "before": d.of("W", "t-1"), "anchor": d.of("W", "ref")}
    sign = d.times if rule.diagonal else " "
    product = f"{memory[spec.readout.memory]}{sign}{query}"
    shown = NetworkEquations(rule.network, d).behind(product, d.of("q"))
    own = ""
    if spec.readout.bonus is not None:
        bonus = d.expr(sym.coefficient("bonus")) + d.times + feature(rule, d, d.of("k"))
        own = f"{d.flipped(f'({bonus})')} {query}"
        shown += f" + {value(rule, d, 't')} {own}"
    if spec.readout.normalizer != "none":
        yield "normaliser", _normaliser(rule, d)
        size = f"{d.flipped(d.of('n'))} {query}" + (f" + {own}" if own else "")
        if spec.readout.normalizer == "max1":
            size = f"max(|{size}|, 1)"
        shown = f"({shown}) / ({size})" if own else f"{shown} / ({size})"
    if isinstance(rule, Levels):
        yield "levels", _levels(d)
        shown = _weighed(d, query)
    yield "read-out", f"{d.of('y')} = {shown}"


def _levels(d: Dialect) -> str:
    """Write W by buckets of the tree: s lies at the highest binary digit in which it differs."""
    whole = d.sign("Σ_ℓ Wₜ^(ℓ)", r"\sum_\ell W_t^{(\ell)}")
    bucket = d.sign(
        "Wₜ^(ℓ) written by the tokens s with ⌊log₂((s − 1) ⊕ (t − 1))⌋ = ℓ − 1, and Wₜ^(0) by "
        "s = t",
        r"W_t^{(\ell)} \text{ written by } \{s : \lfloor\log_2 ((s-1) \oplus (t-1))\rfloor "
        r"= \ell - 1\},\ W_t^{(0)} \text{ by } s = t",
    )
    return f"{d.of('W')} = {whole}" + d.sign(",  ", r",\quad ") + bucket


def _weighed(d: Dialect, query: str) -> str:
    return d.sign("Σ_ℓ λₜ^(ℓ) Wₜ^(ℓ) ", r"\sum_\ell \lambda_t^{(\ell)} W_t^{(\ell)} ") + query


def _normaliser(rule: Rule, d: Dialect) -> str:
    kept = d.factor(rule.decay) + d.of("n", "t-1")
    key = feature(rule, d, role_key(rule, d, "write", "t"))
    return f"{d.of('n')} = {kept} + {d.factor(simplified(rule.gain * rule.rate))}{key}"
