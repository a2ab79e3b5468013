"""The chunk form: a chunk's coefficients as one matrix, its errors by one triangular system.

With written rows u_s = −η e_s the dual after row t is

    A_t = reach_t ∘ A_0 + carry_t S_0 + Σ_{s ≤ t} mix_ts u_s r_sᵀ

(``parallel.md``, identity 1), and predictions read it one row earlier, so that the errors of a
chunk solve ŷ = base + L (−η e(ŷ)) with L strictly lower triangular (identity 2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen import kept as pairs
from mnemic.codegen.builder import Builder
from mnemic.codegen.coefficients import PLAIN, Coefficients, channel_decay, coefficients
from mnemic.codegen.kept import Side
from mnemic.codegen.links import linked
from mnemic.codegen.plan import Plan
from mnemic.codegen.readouts import divided, unscaled, with_bonus
from mnemic.codegen.reads import from_state
from mnemic.codegen.recurrent import States, declare_states
from mnemic.codegen.systems import Source, solve
from mnemic.compiler.kernelised import folded
from mnemic.compiler.rule import Rule

MATRIX = ("v", "k")


@dataclass(frozen=True)
class Chunk:
    """What the parts of a chunk's plan share."""

    b: Builder
    states: States
    roles: dict[str, str]
    c: Coefficients
    tag: str = ""
    """Tells one matrix's quantities from another's."""


def build(rule: Rule) -> Plan:
    """The plan of one chunk."""
    rule = folded(rule)
    banded = takes_band(rule)
    slot = ("r",) if rule.window > 1 and not banded else ()
    b = Builder(rule, ("t",), slot=slot, flat=bool(slot))
    b.vector_rows = ("s",) if banded else None
    b.declare_vectors()
    states = declare_states(b)
    c = coefficients(b, banded)
    parts = Chunk(b, states, rows_of_roles(b), c)
    sources = solve(parts.b, parts.states, parts.roles, parts.c)
    _carry(parts, sources)
    _read(parts, sources)
    return b.plan


def takes_band(rule: Rule) -> bool:
    """Whether a window is a band of weights: one error a key, free of the step's coefficients."""
    if rule.window == 1 or rule.shared_rows or channel_decay(rule):
        return False
    return not rule.error.signal.free_symbols & {s.symbol for s in rule.scalars}


def rows_of_roles(b: Builder) -> dict[str, str]:
    """The roles' vectors, windows laid flat into rows."""
    roles = b.roles()
    if not b.slot:
        return roles
    return {
        role: b.call(f"{role}_rows", ("s", b.plan.axes(name)[-1]), "flat_rows", name)
        for role, name in roles.items()
    }


# -- the next state --------------------------------------------------------------------------


def _carry(p: Chunk, sources: tuple[Source, ...]) -> None:
    """A and S at the chunk's end."""
    following = carried(p, sources)
    p.b.plan.following[p.states.memory] = following
    if p.states.momentum is not None:
        carry_momentum(p, sources)
    _close(p, following)
    carry_keys(p, sources)


def carried(p: Chunk, sources: tuple[Source, ...]) -> str:
    """A at the chunk's end, or the rows over kept keys."""
    b, states, c = p.b, p.states, p.c
    terms: dict[str, str] = {"kept": kept(p, c.reach, states.memory, f"A{p.tag}_kept")}
    if states.momentum is not None:
        assert c.carry is not None
        assert c.fade is not None
        terms["carried"] = kept(p, c.carry, states.momentum, f"S{p.tag}_carried")
    name = f"{states.memory}_next"
    if states.kept is not None:
        old = b.map(f"{states.memory}_left", _total(terms), dict(terms), "dual")
        rows = [remaining(p, source)[0] for source in sources]
        return _lengthened(p, name, old, rows, "dual")
    for i, source in enumerate(sources):
        new = f"A{p.tag}_new{i}" if i else f"A{p.tag}_new"
        terms[f"new{i}"] = b.product(
            new, MATRIX, *remaining(p, source), flip_left=True, equation="dual"
        )
    return b.map(name, _total(terms), dict(terms), "dual")


def _total(terms: Mapping[str, Any]) -> Any:
    return sp.Add(*(sp.Symbol(term, real=True) for term in terms))


def carry_keys(p: Chunk, sources: tuple[Source, ...]) -> None:
    """Kept keys, and the shares of their rows, at the chunk's end; nothing for a matrix."""
    b, states, c = p.b, p.states, p.c
    if states.kept is None:
        return
    keys = _own_keys(p)
    ends = [None if f is None else _end(p, f) for f in (c.reach, c.carry, c.fade)]
    remains = (sources[0].remain, sources[0].fade)
    pairs.carry(b, states.kept, keys, (ends[0], ends[1], ends[2]), remains)
    if states.anchor is not None:
        pairs.hold_rows(b, states.anchor, keys)


def _lengthened(p: Chunk, name: str, old: str, rows: list[str], equation: str) -> str:
    """Rows over kept keys with those of a chunk; windows' rows are added up by token."""
    b, width = p.b, p.b.rule.window
    if p.c.rows > 1:
        rows = [b.call(f"{r}_folded", ("s", "v"), "folded", r, width=width) for r in rows]
    env = {f"new{i}": (row, ("s", "v")) for i, row in enumerate(rows)}
    new = b.map(f"{name}_rows", _total(env), env, equation)
    if width == 1:
        return b.call(name, pairs.ROWS, "append_rows", old, new, equation=equation)
    return b.call(name, pairs.ROWS, "grown", old, new, equation=equation, tail=width - 1)


def _own_keys(p: Chunk) -> str:
    """The chunk's own keys, without a window's tail."""
    b, k = p.b, p.b.featured("k")
    if b.slot:
        return b.call("own_keys", ("t", "k"), "newest", k)
    if p.c.banded:
        return b.call("own_keys", ("t", "k"), "own_rows", k, b.featured("q"))
    return k


def _end(p: Chunk, factor: str) -> str:
    """What a factor by row is at the chunk's end."""
    channel = p.b.plan.axes(factor)[1:]
    return p.b.call(f"{factor}_end", channel, "last_row" if channel else "last", factor)


def kept(p: Chunk, factor: str | None, state: str, name: str) -> str:
    """A state times its decay over the whole chunk."""
    b = p.b
    one = sp.Symbol("state_", real=True)
    env: dict[str, Any] = {"state_": state}
    expr = one
    if factor is not None:
        expr = expr * sp.Symbol("factor_", real=True)
        env["factor_"] = (_end(p, factor), b.plan.axes(factor)[1:])
    if p.c.row_reach is not None and state == p.states.memory:
        final = b.call("row_reach_end", ("v",), "last_row", p.c.row_reach)
        expr = expr * sp.Symbol("row_", real=True)
        env["row_"] = (final, ("v",))
    return b.map(name, expr, env, "dual")


def remaining(p: Chunk, source: Source) -> tuple[str, str]:
    """The written rows and their keys, decayed to the chunk's end."""
    b, c = p.b, p.c
    rows, keys = source.rows, source.keys
    if c.log_channel is not None:
        left = c.remain[source.through]
        k, f = sp.Symbol("k_", real=True), sp.Symbol("f_", real=True)
        keys = b.map(f"{keys}_left", k * f, {"k_": (keys, ("s", "k")), "f_": (left, ("s", "k"))})
    elif source.remain is not None and p.states.kept is not None:
        u, f = sp.Symbol("u_", real=True), sp.Symbol("f_", real=True)
        env = {"u_": (rows, ("s", "v")), "f_": (source.remain, ("s",))}
        rows = b.map(f"{rows}_left", u * f, env)
    elif source.remain is not None:
        k, f = sp.Symbol("k_", real=True), sp.Symbol("f_", real=True)
        env = {"k_": (keys, ("s", "k")), "f_": (source.remain, ("s",))}
        keys = b.map(f"{keys}_left", k * f, env)
    if c.row_remain is not None:
        u, f = sp.Symbol("u_", real=True), sp.Symbol("f_", real=True)
        env = {"u_": (rows, ("s", "v")), "f_": (c.row_remain, ("s", "v"))}
        rows = b.map(f"{rows}_rest", u * f, env)
    return rows, keys


def carry_momentum(p: Chunk, sources: tuple[Source, ...]) -> None:
    """S at the chunk's end."""
    b, c, states = p.b, p.c, p.states
    assert states.momentum is not None
    terms = {"kept": kept(p, c.fade, states.momentum, f"S{p.tag}_kept")}
    faded: list[str] = []
    for i, source in enumerate(s for s in sources if s.through == "momentum"):
        rows = _faded(p, source)
        faded.append(rows)
        if states.kept is not None:
            continue
        terms[f"new{i}"] = b.product(f"S{p.tag}_new", MATRIX, rows, source.keys, flip_left=True,
                                     equation="momentum")  # fmt: skip
    name = f"{states.momentum}_next"
    if states.kept is None:
        following = b.map(name, _total(terms), dict(terms), "momentum")
    else:
        following = _lengthened(p, name, terms["kept"], faded, "momentum")
    b.plan.following[states.momentum] = following


def _faded(p: Chunk, source: Source) -> str:
    """Written rows as they stand in the momentum at the chunk's end."""
    assert source.fade is not None
    u, f = sp.Symbol("u_", real=True), sp.Symbol("f_", real=True)
    env = {"u_": (source.rows, ("s", "v")), "f_": (source.fade, ("s",))}
    return p.b.map(f"{source.rows}_faded", u * f, env)


def _close(p: Chunk, dual: str) -> None:
    """At a chunk's end the anchor moves, and a prox acts on the memory."""
    b, states, rule = p.b, p.states, p.b.rule
    if states.anchor is None:
        return
    b.plan.following[states.anchor] = states.anchor
    memory = linked(b, dual, rule.retained.link, "W_end", end=True)
    b.plan.close(rule.anchor, states.anchor, memory)
    if rule.retained.mode == "prox":
        b.plan.close(
            rule.anchor, states.memory, b.map("B_end", rule.retained.mirror, {"w": memory}, "dual")
        )


# -- the read-out ----------------------------------------------------------------------------


def _read(p: Chunk, sources: tuple[Source, ...]) -> None:
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
    rate = b.map("rate", b.rate, b.coefficients(b.rate)) if b.rate != 1 else None
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
    b.plan.following[state] = b.map("n_next", expr, env, "readout")
