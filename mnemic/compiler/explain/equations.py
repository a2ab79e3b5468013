"""A rule as numbered equations, which text, LaTeX and generated code cite."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.dialect import Dialect, dialect
from mnemic.compiler.explain.kernel_equations import kernels, rows
from mnemic.compiler.explain.layered_equations import layered, reference, taken_back
from mnemic.compiler.explain.layered_words import terms as layered_terms
from mnemic.compiler.explain.memory_equations import dual, link, memory_name, readout, seen_memory
from mnemic.compiler.explain.network_equations import NetworkEquations
from mnemic.compiler.explain.notation import (
    acted,
    feature,
    role_features,
    role_key,
    value,
    with_value,
)
from mnemic.compiler.explain.pair_equations import pairs
from mnemic.compiler.rule import KeyValuePairs, Layers, Levels, Linear, Moments, Rule


@dataclass(frozen=True)
class Equation:
    """One line of the rule. ``name`` is ``prediction``, ``error``, ``gradient``, ``momentum``,
    ``moments``, ``keys``, ``weights``, ``dual`` (``memory`` where the link is the identity),
    ``link``, ``normaliser``, ``levels`` or ``read-out``; of memories of layers also ``network``,
    ``layers``, ``chain rule``, ``steps``, ``use``, ``norms``, of Adam ``squares`` and ``means``,
    of held retentions ``retention``."""

    number: int
    name: str
    text: str
    latex: str


def equations(rule: Rule) -> tuple[Equation, ...]:
    """Return the rule's equations, numbered from 1; parts that the rule lacks are absent."""
    plain = list(_lines(rule, dialect(rule, tex=False)))
    tex = list(_lines(rule, dialect(rule, tex=True)))
    return tuple(
        Equation(i, name, shown, typeset)
        for i, ((name, shown), (_, typeset)) in enumerate(zip(plain, tex, strict=True), 1)
    )


def _lines(rule: Rule, d: Dialect) -> Iterator[tuple[str, str]]:
    match rule:
        case Moments():
            yield from _moments(rule, d)
            yield from readout(rule, d)
        case KeyValuePairs():
            yield from pairs(rule, d)
        case Layers():
            yield from kernels(rule, d)
            yield from layered(rule, d)
        case Linear() | Levels():
            yield from kernels(rule, d)
            yield from _linear(rule, d)


def _linear(rule: Linear | Levels, d: Dialect) -> Iterator[tuple[str, str]]:
    """Write the lines of one matrix that moves by a step a token."""
    if not rule.error.constant:
        yield "prediction", _prediction(rule, d)
    yield "error", f"{d.of('e', _index(rule))} = {_signal(rule, d)}{with_value(rule, d)}"
    yield "gradient", _gradient(rule, d)
    if rule.momentum is not None:
        yield "momentum", _momentum(rule, d)
    yield from dual(rule, d)
    yield from link(rule, d)
    if rule.retained.mode == "prox" and rule.anchor > 1:
        yield "retention", taken_back(rule, d, rule.anchor)
    if rule.kernels is not None:
        yield from rows(rule, d)
    yield from readout(rule, d)


def _index(rule: Rule) -> str:
    return "i" if rule.window > 1 else "t"


def _prediction(rule: Rule, d: Dialect) -> str:
    index = _index(rule)
    key = feature(rule, d, role_key(rule, d, "predict", index))
    shown = NetworkEquations(rule.network, d).behind(f"{_seen(rule, d)} {key}", d.of("k", index))
    return f"{d.of('y^', index)} = {shown}{reference(rule, d)}"


def _seen(rule: Rule, d: Dialect) -> str:
    """Write the memory that the gradient sees."""
    if rule.anchor > 1:
        return d.of("W", "ref")
    return seen_memory(rule, d, _rows_seen(rule))


def _rows_seen(rule: Rule) -> Any:
    """Return the decay of rows that the gradient sees: one where it comes after the gradient."""
    return rule.row_decay if rule.problem.spec.retention.order == "before" else sp.Integer(1)


def _signal(rule: Rule, d: Dialect) -> str:
    """Write the error, of the window's token where there are several."""
    shown = d.expr(rule.error.signal)
    return shown if rule.window == 1 else d.at_each(shown)


def _gradient(rule: Rule, d: Dialect) -> str:
    index = _index(rule)
    left, write = d.of("G"), role_features(rule, d, "write", index)
    erase = role_features(rule, d, "erase", index)
    if rule.split:
        taken = d.factor(rule.error.slope) + d.of("y^", index)
        given = d.expr(rule.error.offset)
        given = given if rule.window == 1 else d.at_each(given)
        joined = f"{taken} {erase} {_signed(d, given, write)}"
        if rule.window == 1:
            return f"{left} = {joined}"
        gate = "" if rule.gamma is None else d.of("gamma", "i") + " "
        return f"{left} = {d.windowed(gate + d.wrapped(joined), rule.window)}"
    error = _through_norm(rule, d, index) + d.of("e", index)
    body = f"{error} {erase if not rule.error.constant else write}"
    if rule.diagonal:
        body = d.of("e", index) + d.times + role_key(rule, d, "write", index)
    if rule.window > 1:
        gate = "" if rule.gamma is None else d.of("gamma", "i") + " "
        return f"{left} = {d.windowed(gate + body, rule.window)}"
    return f"{left} = {body}"


def _through_norm(rule: Rule, d: Dialect, index: str) -> str:
    """Write LN′ᵀ, where a norm stands between W φ and the prediction, else nothing."""
    if not rule.network.normed:
        return ""
    inner = f"{_seen(rule, d)} {feature(rule, d, role_key(rule, d, 'predict', index))}"
    return d.flipped(d.sign(f"LN′({inner})", rf"\operatorname{{LN}}'({inner})")) + " "


def _signed(d: Dialect, shown: str, after: str) -> str:
    sign = "+"
    if shown.startswith(("−", "-")):
        sign, shown = d.minus, shown[1:].strip()
    return f"{sign} {shown} {after}"


def _momentum(rule: Rule, d: Dialect) -> str:
    old = f"{d.factor(rule.momentum)}{d.of('S', 't-1')}"
    step = f"{d.factor(rule.rate)}{d.of('G')}"
    if rule.momentum_on == "write":
        write = role_features(rule, d, "write", "t")
        given = d.expr(sp.expand(-rule.rate * rule.error.offset))
        return f"{d.of('S')} = {old} {_signed(d, given, write)}"
    return f"{d.of('S')} = {old} {d.minus} {step}"


def _moments(rule: Moments, d: Dialect) -> Iterator[tuple[str, str]]:
    solution = rule.solution
    key, written = feature(rule, d, d.of("k")), value(rule, d, "t")
    fade = d.factor(sym.coefficient("gamma")) if solution.fades else ""
    weight = d.factor(solution.weight)
    beside = solution.constant or solution.ridge == 0
    start = "" if beside else _start(rule, d)
    yield (
        "moments",
        f"{d.of('H')} = {fade}{d.of('H', 't-1')} + {weight}{key} {d.flipped(key)}{start}",
    )
    yield "moments", f"{d.of('U')} = {fade}{d.of('U', 't-1')} + {weight}{written} {d.flipped(key)}"
    w, h, u = d.of("W"), d.of("H"), d.of("U")
    if solution.constant and solution.ridge != 0:
        h = d.wrapped(f"{h} + {_diagonal(rule, d)}")
    if solution.steps:
        rate = d.factor(rule.rate)
        step = f"{d.of('W', '')} {d.minus} {rate}({d.of('W', '')} {h} {d.minus} {u})"
        arrow = d.sign(" ← ", r" \leftarrow ")
        tail = d.sign(f", {solution.steps} times from 0",
                      rf",\ {solution.steps} \text{{ times from }} 0")  # fmt: skip
        yield "memory", f"{d.of('W', '')}{arrow}{step}{tail}"
        return
    inverse = d.sign("⁻¹", "^{-1}")
    yield "memory", f"{w} = {u} {h if beside and solution.constant else d.wrapped(h)}{inverse}"


def _diagonal(rule: Moments, d: Dialect) -> str:
    """Write the ridge as a matrix: λI, or Diag(λ) with one value a key channel."""
    ridge, per = rule.solution.ridge, {s.symbol: s.per for s in rule.scalars}
    if any(per.get(s) == "key" for s in ridge.free_symbols):
        return d.call("Diag", d.expr(ridge))
    return f"{d.factor(ridge)}I"


def _start(rule: Moments, d: Dialect) -> str:
    shown = f"{d.sign('H₀', 'H_0')} = {d.expr(rule.solution.ridge)} I"
    return d.sign(",  ", r",\quad ") + shown


def terms(rule: Rule) -> dict[str, Any]:
    """Return the parts of the rule by name as text, for a comparison part by part."""
    d = dialect(rule, tex=False)
    if isinstance(rule, KeyValuePairs):
        return {e.name: e.text for e in equations(rule)}
    found = {e.name: e.text for e in equations(rule) if e.name in ("prediction", "read-out")}
    link_text = next((line for _, line in link(rule, d)), "identity")
    momentum = "none" if rule.momentum is None else f"{d.expr(rule.momentum)} on {rule.momentum_on}"
    return {
        **layered_terms(rule),
        "prediction": found.get("prediction", "none: the error does not see it"),
        "error signal": d.expr(rule.error.signal),
        "slope": _slope(rule, d),
        "rate": d.expr(rule.rate),
        "decay": acted(rule, d, rule.decay, rule.row_decay, memory_name(rule, d, "t-1")),
        "seen part": seen_memory(rule, d, _rows_seen(rule)),
        "momentum": momentum,
        "window": str(rule.window) + (f", one gate a {rule.gamma}" if rule.gamma else ""),
        "steps a token": str(1 if rule.window > 1 else rule.rows),
        "gain": d.expr(rule.gain),
        "link": link_text,
        "read-out": found.get("read-out", ""),
        "keys": _keys(rule, d),
        "anchor": f"chunk {rule.anchor}" if rule.anchor > 1 else "token",
    }  # fmt: skip


def _slope(rule: Rule, d: Dialect) -> str:
    """Write ∂e/∂ŷ: a slope of each coordinate, and for a loss of the norm a rank-one term."""
    shown = d.expr(rule.error.slope)
    if rule.error.radial == 0:
        return shown
    return f"{d.wrapped(shown)} I + {d.wrapped(d.expr(rule.error.radial))} (ŷ − v)(ŷ − v)ᵀ"


def _keys(rule: Rule, d: Dialect) -> str:
    roles = [f"{r} {role_key(rule, d, r, 't')}" for r in ("predict", "erase", "write")]
    return ", ".join([*roles, f"value {value(rule, d, 't')}"])
