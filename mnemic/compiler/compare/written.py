"""Rule → Form: the whole state's transition and the read-out, written out."""

from collections.abc import Mapping
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.coordinates import COLUMNS, PARAMETERS, Coordinates, matrix, turned
from mnemic.compiler.compare.entry_form import HOLDERS, Form, State, tidy_entry
from mnemic.compiler.compare.gradient_step import Matrix, Writer, product, through_network
from mnemic.compiler.compare.opaque_functions import GROUP, OWN, error_function, one_spelling
from mnemic.compiler.compare.tags import feature_functions, feature_tags, linear_tags, opaque_tags
from mnemic.compiler.compare.transition import Recurrence
from mnemic.compiler.compare.written_layers import kept_whole, layers_form
from mnemic.compiler.compare.written_moments import moments
from mnemic.compiler.compare.written_pairs import fitted
from mnemic.compiler.compare.written_readout import divided, of_ones, with_bonus
from mnemic.compiler.rule import KeyValuePairs, Layers, Levels, Linear, Moments, Rule


def write_out(rule: Rule, values: Mapping[Any, Any]) -> Form:
    """Write out the rule by entries, or its terms alone where the memory is not W φ."""
    writer = Writer(rule, Coordinates(rule, values))
    match rule:
        case KeyValuePairs():
            return fitted(rule, values)
        case Layers():
            return layers_form(rule, values)
        case Moments():
            form = moments(rule, writer)
        case Linear() | Levels() if rule.structure.missing is not None:
            return _terms(rule, values)
        case Linear() | Levels():
            form = _recurrence(writer)
    functions = {**dict(form.functions), **writer.functions}
    form = Form(
        form.states, form.output, tuple(writer.wholes), tuple(sorted(functions.items())),
        tuple(sorted((*linear_tags(rule, values), *feature_tags(rule)))),
        tuple(sorted(writer.at.inputs, key=str)), PARAMETERS, feature_functions(rule, writer.at),
    )  # fmt: skip
    return form.mapped(tidy_entry)


def _recurrence(writer: Writer) -> Form:
    step = Recurrence(writer)
    at, rule = writer.at, writer.rule
    states = [_carried("W", step.before, step.after)]
    if step.momentum is not None:
        states.append(_carried("S", writer.symbols("S"), step.momentum))
    if step.anchored:
        held = writer.symbols("R")
        states.append(_carried("R", held, held))
    queries, more = at.queries(), []
    if getattr(rule.problem.spec.memory, "slots", None):
        queries, slots = _slots(writer, queries)
        more.append(slots)
    output, total = _read(writer, step, queries)
    if at.phased:
        more.append(State("angle", tuple(at.angles()), tuple(at.turns())))
    if at.complex:
        output = turned(output, at.turns(), 1)
    return Form((*states, *total, *more), tuple(output))


def _read(writer: Writer, step: Recurrence, queries: list[Any]) -> tuple[list[Any], list[State]]:
    rule, at = writer.rule, writer.at
    readout = rule.problem.spec.readout
    dual = rule.retained.mode == "dual"
    memory = step.after
    if readout.memory == "before":
        memory = step.before
    if readout.memory == "anchor" and rule.anchor > 1:
        memory, dual = writer.symbols("R"), False
    if dual:
        memory = step.linked(memory, "_read")
    products = [product(row, queries) for row in memory]
    output, _ = through_network(writer, products, ("q",), "_read")
    output = with_bonus(writer, output, queries)
    output, total = _normalised(writer, output, queries)
    if isinstance(rule, Levels):  # what weighs which is told by a tag
        weight = at.at(rule.problem.value("levels"), 0, 0)
        output = [weight * y for y in output]
    return output, total


def _normalised(
    writer: Writer, output: list[Any], queries: list[Any]
) -> tuple[list[Any], list[State]]:
    if writer.rule.problem.spec.readout.normalizer == "none":
        return output, []
    count = of_ones(writer)
    step = Recurrence(count, "N", "NS")
    states = [_carried("N", step.before[:1], step.after[:1])]
    if step.momentum is not None:
        states.append(_carried("NS", count.symbols("NS")[:1], step.momentum[:1]))
    writer.wholes += count.wholes
    return divided(writer, count, output, product(step.after[0], queries), queries), states


def _slots(writer: Writer, queries: list[Any]) -> tuple[list[Any], State]:
    """Return softmax weights over slots, read by the query, and the keys' companion memory."""
    at, rule = writer.at, writer.rule
    before = matrix("K", COLUMNS, COLUMNS)
    write = at.features("write", "")
    after = [
        [
            writer.by_entry(rule.decay, 0, m) * before[m][j]
            + writer.by_entry(rule.rate, 0, m) * write[m] * at.data("k", j)
            for j in range(COLUMNS)
        ]
        for m in range(COLUMNS)
    ]
    scores = [product(row, queries) for row in after]
    body = sp.exp(OWN) / sum((sp.exp(g) for g in GROUP[:COLUMNS]), sp.Integer(0))
    read = [writer.whole("softmax", body, [s, *scores], f"_{m}") for m, s in enumerate(scores)]
    return read, _carried("K", before, after)


def _carried(name: str, symbols: Matrix, after: Matrix) -> State:
    """Build a state from matrices, leaving out entries that are always zero."""
    flat = [
        (s, a)
        for symbol_row, row in zip(symbols, after, strict=True)
        for s, a in zip(symbol_row, row, strict=True)
        if s != 0
    ]
    return State(name, tuple(s for s, _ in flat), tuple(sp.sympify(a) for _, a in flat))


def _terms(rule: Rule, values: Mapping[Any, Any]) -> Form:
    """Return the form of a rule that is not written out: its terms side by side."""
    at = Coordinates(rule, values)
    factor, body = error_function(at.resolved(rule.error.signal))
    functions = [("error", body)]
    if rule.retained.link.expr is not None:
        link = at.resolved(rule.retained.link.expr)
        names = dict(zip((sym.a, sym.zeta, sym.nu), HOLDERS, strict=False))
        functions.append(("link", one_spelling(link).subs(names)))
    parts = (rule.rate * factor, rule.gain, rule.decay, rule.row_decay, rule.seen, rule.momentum)
    output = tuple(sp.Integer(0) if p is None else at.at(p, 0, 0) for p in parts)
    tags = (*opaque_tags(rule), *feature_tags(rule))
    wholes = kept_whole(dict(functions))
    form = Form(
        (), (*output, *(w.symbol for w in wholes)), wholes, tuple(functions), tuple(sorted(tags)),
        (), PARAMETERS, feature_functions(rule, at),
    )  # fmt: skip
    return form.mapped(tidy_entry)
