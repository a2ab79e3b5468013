"""What a chunk's queries read: of the state before it, and of the rows written inside it."""

from typing import Any

import sympy as sp

from mnemic.codegen import kept as pairs
from mnemic.codegen.chunk.parts import MATRIX, Chunk
from mnemic.codegen.coefficients import PLAIN
from mnemic.codegen.kept import Side
from mnemic.codegen.links import linked
from mnemic.codegen.readouts import divided, unscaled, with_bonus
from mnemic.codegen.reads import from_state
from mnemic.codegen.systems import Source


def read_out(p: Chunk, sources: tuple[Source, ...]) -> None:
    """The chunk's outputs, as the rule reads them."""
    b, rule = p.b, p.b.rule
    query = b.featured("q")
    where = rule.problem.spec.readout.memory
    if where == "anchor":
        assert p.states.anchor is not None
        read = _anchor_read(p, query)
    elif rule.retained.link.identity and rule.retained.mode == "dual":
        read = linear_read(p, sources, query, "y", before=where == "before")
    else:
        read = _linked_read(p, sources, query, before=where == "before")
    read = with_bonus(b, read, query, p.roles)
    b.plan.output = _normalised(p, read, query, sources)


def linear_read(
    p: Chunk, sources: tuple[Source, ...], query: str, name: str, *, before: bool
) -> str:
    """reach ∘ (q A_0ᵀ) + carry ∘ (q S_0ᵀ) + (scores ∘ mix) u."""
    b, c, states = p.b, p.c, p.states
    reach, carry = (c.reach_before, c.carry_before) if before else (c.reach, c.carry)
    side = _reading(p, sources[0], query, (reach, carry), before=before)
    old, speed = f"{name}_old", f"{name}_speed"
    terms = {"old": _from_state(p, query, reach, states.memory, old, before, side)}
    if states.momentum is not None:
        terms["speed"] = _from_state(p, query, carry, states.momentum, speed, before, side)
    for i, source in enumerate(sources):
        weights = c.scores(b, query, source.keys, source.through, before=before, side=side)
        new = f"{name}_new{i}" if i else f"{name}_new"
        if c.log_row is not None:
            terms[f"new{i}"] = b.call(new, ("t", "v"), "decayed_mix", weights, source.rows,
                                      c.log_row, equation="readout")  # fmt: skip
        else:
            terms[f"new{i}"] = b.product(new, ("t", "v"), weights, source.rows,
                                         equation="readout")  # fmt: skip
    total = sum((sp.Symbol(t, real=True) for t in terms), sp.Integer(0))
    whole = b.map(name, total, dict(terms), "readout")
    return side.divided(b, whole, f"{name}_mean", "readout")


def _reading(
    p: Chunk, source: Source, query: str, factors: tuple[str | None, str | None], *, before: bool
) -> Side:
    """How queries meet the memory."""
    kept, kernels = p.states.kept, p.b.rule.kernels
    if kept is None or kernels is None:
        return PLAIN
    mix = (p.c.before if before else p.c.mix)[source.through]
    if before and mix is None and kernels.read.normalised:
        ones = p.b.call("sums", ("t", "s"), "lower_ones_of", query)
        mix = p.b.call("sums_strict", ("t", "s"), "strictly_lower", ones)
    return pairs.meeting(p.b, kernels.read, kept, query, source.keys, mix, factors)


def _anchor_read(p: Chunk, query: str) -> str:
    b, kept, kernels = p.b, p.states.kept, p.b.rule.kernels
    assert p.states.anchor is not None
    if kept is None or kernels is None:
        return b.product("y", ("t", "v"), query, p.states.anchor, flip_right=True,
                         equation="readout")  # fmt: skip
    side = pairs.meeting_anchor(b, kernels.read, kept, query)
    whole = b.product("y", ("t", "v"), side.of_past(b, query), p.states.anchor, equation="readout")
    return side.divided(b, whole, "y_mean", "readout")


def _from_state(
    p: Chunk, vectors: str, factor: str | None, state: str, name: str, before: bool, side: Side
) -> str:
    return from_state(p.b, p.c, vectors, factor, state, name, row_decay=not before, side=side)


def _linked_read(p: Chunk, sources: tuple[Source, ...], query: str, *, before: bool = False) -> str:
    """The dual at every row, linked, then read: for links that are not the identity."""
    b = p.b
    duals = dual_rows(p, sources)
    if before:
        duals = b.call("A_before", ("t", *MATRIX), "delayed_states", duals, p.states.memory)
    memories = linked(b, duals, b.rule.retained.link, "W_rows")
    return b.call("y", ("t", "v"), "recall", memories, query, equation="readout")


def dual_rows(p: Chunk, sources: tuple[Source, ...]) -> str:
    """The dual after every row, [t, v, k]."""
    b, c, states = p.b, p.c, p.states
    terms: dict[str, Any] = {}
    expr: Any = sp.Integer(0)
    for name, state, factor in (("a", states.memory, c.reach), ("m", states.momentum, c.carry)):
        if state is None:
            continue
        term = sp.Symbol(f"{name}_", real=True)
        terms[f"{name}_"] = (state, MATRIX)
        if factor is not None:
            axes = ("t", "k") if len(b.plan.axes(factor)) == 2 else ("t",)
            terms[f"{name}f_"] = (factor, axes)
            term = term * sp.Symbol(f"{name}f_", real=True)
        expr = expr + term
    for i, source in enumerate(sources):
        new = c.accumulated(b, source, f"A{p.tag}_sums")
        terms[f"n{i}_"] = (new, ("t", *MATRIX))
        expr = expr + sp.Symbol(f"n{i}_", real=True)
    return b.map(f"A{p.tag}_rows", expr, terms, "dual")


def _normalised(p: Chunk, read: str, query: str, sources: tuple[Source, ...]) -> str:
    b, c = p.b, p.c
    if b.rule.problem.spec.readout.normalizer == "none":
        return unscaled(b, read, c.m)
    state = b.plan.given("n", ("k",), state=True)
    (source,) = sources
    k, f = sp.Symbol("k_", real=True), sp.Symbol("f_", real=True)
    rate = b.row_map("rate", b.rate) if b.rate != 1 else None
    weights = c.scores(b, query, source.keys, source.through, before=False)
    old = b.call("n_old", ("t",), "recall_row", state, query)
    if c.reach is not None and len(b.plan.axes(c.reach)) == 1:
        old = b.map("n_reach", k * f, {"k_": old, "f_": c.reach})
    new = b.call("n_new", ("t",), "weigh", weights, *(() if rate is None else (rate,)))
    env = {"k_": old, "f_": new}
    weight = b.map("weight", k + f, env, "readout")
    _carry_normaliser(p, state, source, rate)
    return divided(b, read, weight, c.m)


def _carry_normaliser(p: Chunk, state: str, source: Source, rate: str | None) -> None:
    b, c = p.b, p.c
    k, f = sp.Symbol("k_", real=True), sp.Symbol("f_", real=True)
    keys = source.keys
    for factor in (source.remain, rate):
        if factor is not None:
            pair = {"k_": (keys, ("s", "k")), "f_": (factor, ("s",))}
            keys = b.map(f"{keys}_weighed", k * f, pair)
    new = b.call("n_sum", ("k",), "total_rows", keys)
    env: dict[str, Any] = {"k_": state, "f_": new}
    expr = k + f
    if c.reach is not None:
        env["r_"] = (b.call(f"{c.reach}_end", (), "last", c.reach), ())
        expr = k * sp.Symbol("r_", real=True) + f
    b.plan.following[state] = b.map("n_next", expr, env, "normaliser")
