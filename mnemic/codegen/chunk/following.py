"""The state updates of a chunk for one matrix: memory, momentum, kept keys, and the ends of
intervals."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from mnemic.codegen import keyed_rows
from mnemic.codegen.chunk.parts import Chunk, Moved, Source, gains_at_once
from mnemic.codegen.chunk.rows import dual_rows_through_o, memory_rows
from mnemic.codegen.moves import close, memory_of
from mnemic.codegen.states import MATRIX
from mnemic.compiler.rule import Layers


def move(p: Chunk, sources: tuple[Source, ...]) -> tuple[Moved, dict[int, str]]:
    """Move the states of one matrix; also return what ends of intervals make of its memory."""
    b, m, duals = p.b, p.m, None
    if m.norms is not None:
        b.plan.following[m.norms] = m.norms
    if m.every > 1:
        return _hold(p, sources)
    if b.rule.applied.kind != "identity":
        duals = dual_rows_through_o(p, *sources)
        dual = b.call(f"{m.memory}_next", MATRIX, "last_of", duals, equation="dual")
    else:
        sources = tuple(_gained(p, source) for source in sources)
        dual = carried(p, sources)
        if not isinstance(b.rule, Layers):  # in this order, since kernels have been measured so
            b.plan.following[m.memory] = dual
        if m.momentum is not None:
            carry_momentum(p, sources)
    b.plan.following[m.memory] = dual
    rows, sums = memory_rows(p, sources, duals)
    last = memory_of(b, m, dual, f"W{m.tag}_last", end=True)
    closed = close(b, m, dual, None, end=True)
    carry_keys(p, sources)
    return Moved(p, sources, last, rows, sums), closed


def _gained(p: Chunk, source: Source) -> Source:
    """Return rows times the retention's gain, unless errors, momentum or a band hold it."""
    b = p.b
    if b.rule.gain == 1 or gains_at_once(b.rule) or p.m.momentum is not None or p.c.banded:
        return source
    u = sp.Symbol("u_", real=True)
    env = {"u_": source.rows, **b.row_coefficients(b.rule.gain)}
    rows = b.map(f"{source.rows}_gained", b.rule.gain * u, env)
    return replace(source, rows=rows)


def _hold(p: Chunk, sources: tuple[Source, ...]) -> tuple[Moved, dict[int, str]]:
    """Move a matrix that stands still for the chunk: A decays, S gathers."""
    b, m = p.b, p.m
    (source,) = sources
    assert m.held is not None
    assert m.momentum is not None
    dual = b.plan.following[m.memory] = decay_to_end(p, p.c.reach, m.memory, f"{m.memory}_next")
    if b.rule.momentum is not None:
        carry_momentum(p, sources)
    else:
        new = b.product(f"S{m.tag}_new", MATRIX, _gathered(p, source), source.keys,
                        flip_left=True, equation="momentum")  # fmt: skip
        one, two = sp.Symbol("S_", real=True), sp.Symbol("G_", real=True)
        total = b.map(f"{m.momentum}_next", one + two, {"S_": m.momentum, "G_": new}, "momentum")
        b.plan.following[m.momentum] = total
    step = b.plan.following[m.momentum]
    return Moved(p, sources, m.held), close(b, m, dual, step, end=True)


def _gathered(p: Chunk, source: Source) -> str:
    """Return rows times how often a window's band takes them in."""
    b = p.b
    if not p.c.banded:
        return source.rows
    counts = b.call("taken", ("s",), "total_rows", "band")
    u, f = sp.Symbol("u_", real=True), sp.Symbol("f_", real=True)
    env = {"u_": (source.rows, ("s", "v")), "f_": (counts, ("s",))}
    return b.map(f"{source.rows}_taken", u * f, env)


def carried(p: Chunk, sources: tuple[Source, ...]) -> str:
    """Return A at the chunk's end, or the rows over kept keys."""
    b, m, c = p.b, p.m, p.c
    terms: dict[str, str] = {"kept": decay_to_end(p, c.reach, m.memory, f"A{p.m.tag}_kept")}
    if m.momentum is not None:
        assert c.carry is not None
        assert c.fade is not None
        terms["carried"] = decay_to_end(p, c.carry, m.momentum, f"S{p.m.tag}_carried")
    name = f"{m.memory}_next"
    if m.kept is not None:
        old = b.map(f"{m.memory}_left", _total(terms), dict(terms), "dual")
        rows = [remaining(p, source)[0] for source in sources]
        return _lengthened(p, name, old, rows, "dual")
    for i, source in enumerate(sources):
        new = f"A{p.m.tag}_new{i}" if i else f"A{p.m.tag}_new"
        terms[f"new{i}"] = b.product(
            new, MATRIX, *remaining(p, source), flip_left=True, equation="dual"
        )
    return b.map(name, _total(terms), dict(terms), "dual")


def _total(terms: Mapping[str, Any]) -> Any:
    return sp.Add(*(sp.Symbol(term, real=True) for term in terms))


def carry_keys(p: Chunk, sources: tuple[Source, ...]) -> None:
    """Move kept keys and the shares of their rows to the chunk's end; a matrix has none."""
    b, m, c = p.b, p.m, p.c
    if m.kept is None:
        return
    keys = _own_keys(p)
    ends = [None if f is None else _end(p, f) for f in (c.reach, c.carry, c.fade)]
    remains = (sources[0].remain, sources[0].fade)
    keyed_rows.carry(b, m.kept, keys, (ends[0], ends[1], ends[2]), remains)
    if m.anchor is not None:
        keyed_rows.hold_rows(b, m.anchor, keys)


def _lengthened(p: Chunk, name: str, old: str, rows: list[str], equation: str) -> str:
    """Append a chunk's rows to those over kept keys; windows' rows are added up by token."""
    b, width = p.b, p.b.rule.window
    if p.c.rows > 1:
        rows = [b.call(f"{r}_folded", ("s", "v"), "folded", r, width=width) for r in rows]
    env = {f"new{i}": (row, ("s", "v")) for i, row in enumerate(rows)}
    new = rows[0] if len(rows) == 1 else b.map(f"{name}_rows", _total(env), env, equation)
    if width == 1:
        return b.call(name, keyed_rows.ROWS, "append_rows", old, new, equation=equation)
    return b.call(name, keyed_rows.ROWS, "grown", old, new, equation=equation, tail=width - 1)


def _own_keys(p: Chunk) -> str:
    """Return the chunk's own keys, without a window's tail."""
    b, k = p.b, p.b.featured("k")
    if b.slot:
        return b.call("own_keys", ("t", "k"), "newest", k)
    if p.c.banded:
        return b.call("own_keys", ("t", "k"), "own_rows", k, b.featured("q"))
    return k


def _end(p: Chunk, factor: str) -> str:
    """Return what a factor by row is at the chunk's end."""
    channel = p.b.plan.axes(factor)[1:]
    return p.b.call(f"{factor}_end", channel, "last_row" if channel else "last", factor)


def decay_to_end(
    p: Chunk, factor: str | None, state: str, name: str, equation: str = "dual"
) -> str:  # fmt: skip
    """Return a state times its decay over the whole chunk."""
    b = p.b
    one = sp.Symbol("state_", real=True)
    env: dict[str, Any] = {"state_": state}
    expr = one
    if factor is not None:
        expr = expr * sp.Symbol("factor_", real=True)
        env["factor_"] = (_end(p, factor), b.plan.axes(factor)[1:])
    if p.c.row_reach is not None and state == p.m.memory:
        final = b.call("row_reach_end", ("v",), "last_row", p.c.row_reach)
        expr = expr * sp.Symbol("row_", real=True)
        env["row_"] = (final, ("v",))
    return b.map(name, expr, env, equation)


def remaining(p: Chunk, source: Source) -> tuple[str, str]:
    """Return the written rows and their keys, decayed to the chunk's end."""
    b, c = p.b, p.c
    rows, keys = source.rows, source.keys
    if c.log_channel is not None:
        left = c.remain[source.through]
        k, f = sp.Symbol("k_", real=True), sp.Symbol("f_", real=True)
        keys = b.map(f"{keys}_left", k * f, {"k_": (keys, ("s", "k")), "f_": (left, ("s", "k"))})
    elif source.remain is not None and p.m.kept is not None:
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
    """Move S to the chunk's end."""
    b, c, m = p.b, p.c, p.m
    assert m.momentum is not None
    terms = {"kept": decay_to_end(p, c.fade, m.momentum, f"S{p.m.tag}_kept", "momentum")}
    faded: list[str] = []
    for i, source in enumerate(s for s in sources if s.through == "momentum"):
        rows = _faded(p, source)
        faded.append(rows)
        if m.kept is not None:
            continue
        terms[f"new{i}"] = b.product(f"S{p.m.tag}_new", MATRIX, rows, source.keys, flip_left=True,
                                     equation="momentum")  # fmt: skip
    name = f"{m.momentum}_next"
    if m.kept is None:
        following = b.map(name, _total(terms), dict(terms), "momentum")
    else:
        following = _lengthened(p, name, terms["kept"], faded, "momentum")
    b.plan.following[m.momentum] = following


def _faded(p: Chunk, source: Source) -> str:
    """Return written rows as they stand in the momentum at the chunk's end."""
    assert source.fade is not None
    u, f = sp.Symbol("u_", real=True), sp.Symbol("f_", real=True)
    env = {"u_": (source.rows, ("s", "v")), "f_": (source.fade, ("s",))}
    return p.b.map(f"{source.rows}_faded", u * f, env)
