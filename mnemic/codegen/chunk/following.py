"""The states at a chunk's end: the memory, its momentum, kept keys, the anchor."""

from collections.abc import Mapping
from typing import Any

import sympy as sp

from mnemic.codegen import kept as pairs
from mnemic.codegen.chunk.parts import MATRIX, Chunk
from mnemic.codegen.links import linked, mirrored
from mnemic.codegen.systems import Source


def carry(p: Chunk, sources: tuple[Source, ...]) -> None:
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
    new = rows[0] if len(rows) == 1 else b.map(f"{name}_rows", _total(env), env, equation)
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


def kept(
    p: Chunk, factor: str | None, state: str, name: str, equation: str = "dual"
) -> str:  # fmt: skip
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
    return b.map(name, expr, env, equation)


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
    terms = {"kept": kept(p, c.fade, states.momentum, f"S{p.tag}_kept", "momentum")}
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
    """At a chunk's end the anchor moves if anything reads it, and a prox acts on the memory."""
    b, states, rule = p.b, p.states, p.b.rule
    acts = rule.retained.mode == "prox" and rule.anchor > 1
    if states.anchor is None and not acts:
        return
    memory = linked(b, dual, rule.retained.link, "W_end", end=True)
    if states.anchor is not None:
        b.plan.following[states.anchor] = states.anchor
        b.plan.close(rule.anchor, states.anchor, memory)
    if acts:
        b.plan.close(rule.anchor, states.memory, mirrored(b, memory, "B_end", end=True))
