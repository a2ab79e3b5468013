"""What a chunk's queries read: of the state before it, and of the rows written inside it."""

from typing import Any

import sympy as sp

from mnemic.codegen import keyed_rows
from mnemic.codegen.builder import Builder
from mnemic.codegen.chunk.parts import Chunk, Moved, Source
from mnemic.codegen.coefficients import PLAIN
from mnemic.codegen.keyed_rows import Side
from mnemic.codegen.network_passes import READOUT, as_vector, forward
from mnemic.codegen.plan import Map
from mnemic.codegen.readouts import divided, with_bonus
from mnemic.codegen.state_reads import from_state
from mnemic.codegen.states import Carried
from mnemic.compiler.rule import Layers


def read_out(parts: list[Moved]) -> str:
    """Return M(W_t, φ(q_t)) for every row, and what stands between it and the output."""
    p, by_name = parts[0].chunk, {part.name: part for part in parts}
    b, network, query = p.b, p.b.rule.network, p.b.featured("q")

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        return _read(by_name[matrix], x, name)

    if not network.linear:
        found = forward(b, network, apply, query, b.vector("q", "k"), READOUT, "_q")
        return found[network.output]
    name = f"{network.output}_q" if isinstance(b.rule, Layers) else "y"
    return _normalised(p, _read(parts[0], query, name), query, parts[0].sources)


def _read(part: Moved, x: str, name: str) -> str:
    """Return W_t x_t of one matrix, row by row."""
    p, b, m = part.chunk, part.chunk.b, part.chunk.m
    where = b.rule.problem.spec.readout.memory
    if where == "anchor" or m.every > 1:
        state = m.still if where == "anchor" else m.held
        return still_read(b, m, state, x, name, "readout")
    if part.rows is None:
        return linear_read(p, part.sources, x, name, before=where == "before")
    if part.duals is not None and where != "before":
        scales = _scales(b, part.rows, part.duals)
        if scales:
            return _scaled(p, part.sources, x, name, scales)
    return b.call(name, as_vector(b, x), "recall", part.rows, x, equation="readout")


def _scales(b: Builder, rows: str, duals: str) -> list[tuple[Any, dict[str, Any]]] | None:
    """Return the factors, one a row, that make memories of their duals; None where others do."""
    found = list[tuple[Any, dict[str, Any]]]()
    while rows != duals:
        op = b.plan[rows].op
        if not isinstance(op, Map):
            return None
        whole = [read for read in op.reads if read.axes == b.plan.axes(rows)]
        rest = [read for read in op.reads if read not in whole]
        if len(whole) != 1 or any(read.axes not in ((), ("t",)) for read in rest):
            return None
        entry = next(s for s in op.expr.free_symbols if s.name == whole[0].symbol)
        factor = sp.cancel(op.expr / entry)
        if entry in factor.free_symbols:
            return None
        found.append((factor, {read.symbol: (read.quantity, read.axes) for read in rest}))
        rows = whole[0].quantity
    return found


def _scaled(
    p: Chunk, sources: tuple[Source, ...], x: str, name: str,
    scales: list[tuple[Any, dict[str, Any]]],
) -> str:  # fmt: skip
    """Return what queries read of duals that a number a row scales: (c A) x = c (A x)."""
    b, found = p.b, linear_read(p, sources, x, f"{name}_dual", before=False)
    read = sp.Symbol("read_", real=True)
    for index, (factor, env) in reversed(list(enumerate(scales))):
        own = {**env, "read_": (found, as_vector(b, x))}
        found = b.map(f"{name}_{index}" if index else name, factor * read, own, "readout")
    return found


def still_read(
    b: Builder, m: Carried, state: str | None, x: str, name: str, equation: str
) -> str:  # fmt: skip
    """Return W x of a memory that stands still for the chunk, through κ behind a kernel."""
    axes, kernels = as_vector(b, x), b.rule.kernels
    assert state is not None
    if m.kept is None or kernels is None:
        return b.product(name, axes, x, state, flip_right=True, equation=equation)
    kernel = kernels.read if equation == "readout" else kernels.predict
    side = keyed_rows.meeting_anchor(b, kernel, m.kept, x)
    whole = b.product(name, axes, side.of_past(b, x), state, equation=equation)
    return side.divided(b, whole, f"{name}_mean", equation)


def read_last(b: Builder, parts: list[Moved], moved: dict[str, str], end: str) -> str:
    """Return the rows' outputs with the last one read from memories that have ``moved``.

    Rows over kept keys stay as they are, and with them what the last query found there.
    """
    memories = {part.name: part.last for part in parts} | moved
    stays = {part.name for part in parts if part.chunk.m.kept is not None}

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        if matrix in stays:
            return b.call(name, ("v",), "last_row", name.removesuffix(end), equation=equation)
        return b.call(name, as_vector(b, x), "recall", memories[matrix], x, equation=equation)

    query = b.call("phi_q_end", ("k",), "last_row", b.featured("q"))
    raw = b.call("q_end", ("k",), "last_row", b.vector("q", "k"))
    found = forward(b, b.rule.network, apply, query, raw, READOUT, f"_q{end}")
    last = found[b.rule.network.output]
    return b.call(f"y{end}", ("t", "v"), "replaced_last", b.plan.output, last, equation="readout")


def linear_read(
    p: Chunk, sources: tuple[Source, ...], query: str, name: str, *, before: bool
) -> str:
    """Return reach ∘ (q A_0ᵀ) + carry ∘ (q S_0ᵀ) + (scores ∘ mix) u."""
    b, c, m = p.b, p.c, p.m
    reach, carry = (c.reach_before, c.carry_before) if before else (c.reach, c.carry)
    side = _reading(p, sources[0], query, (reach, carry), before=before)
    old, speed = f"{name}_old", f"{name}_speed"
    terms = {"old": _from_state(p, query, reach, m.memory, old, before, side)}
    if m.momentum is not None:
        terms["speed"] = _from_state(p, query, carry, m.momentum, speed, before, side)
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
    """Return how queries meet the memory."""
    kept, kernels = p.m.kept, p.b.rule.kernels
    if kept is None or kernels is None:
        return PLAIN
    mix = (p.c.before if before else p.c.mix)[source.through]
    if before and mix is None and kernels.read.normalised:
        ones = p.b.call("sums", ("t", "s"), "lower_ones_of", query)
        mix = p.b.call("sums_strict", ("t", "s"), "strictly_lower", ones)
    return keyed_rows.meeting(p.b, kernels.read, kept, query, source.keys, mix, factors)


def _from_state(
    p: Chunk, vectors: str, factor: str | None, state: str, name: str, before: bool, side: Side
) -> str:
    return from_state(p.b, p.c, vectors, factor, state, name, row_decay=not before, side=side)


def _normalised(p: Chunk, read: str, query: str, sources: tuple[Source, ...]) -> str:
    b, c = p.b, p.c
    if b.rule.problem.spec.readout.normalizer == "none":
        return with_bonus(b, read, query, p.roles)
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
    return divided(b, read, weight, c.m, query, p.roles)


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
