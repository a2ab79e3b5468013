"""The dual and the memory after every row of a chunk, where rows are not read by their sums."""

from typing import Any

import sympy as sp

from mnemic.codegen import averages
from mnemic.codegen.builder import Builder
from mnemic.codegen.chunk.parts import Chunk, Source
from mnemic.codegen.moves import memory_of, scale_of_step, through_o
from mnemic.codegen.states import MATRIX

STATES = ("t", *MATRIX)


def memory_rows(
    p: Chunk, sources: tuple[Source, ...], duals: str | None
) -> tuple[str | None, str | None]:  # fmt: skip
    """Return the memory that every row reads, and the sums that it is made of.

    Both are ``None`` where the memory is its own dual, so that the sums' parts are read. ``duals``
    are those after every row where they are known, and then they are no sums.
    """
    b, m = p.b, p.m
    if duals is None and m.link.identity and b.rule.retained.mode == "dual":
        return None, None
    sums = None if duals is not None else _dual_rows(p, sources)
    dual = duals or sums
    assert dual is not None
    if b.rule.problem.spec.readout.memory == "before":
        dual = b.call(f"A{m.tag}_before", STATES, "delayed_states", dual, m.memory)
    return memory_of(b, m, dual, f"W{m.tag}_rows"), sums


def _dual_rows(p: Chunk, sources: tuple[Source, ...]) -> str:
    """Return the dual after every row, [t, v, k]: what was written, and what is left of before."""
    b, c, m = p.b, p.c, p.m
    terms = {
        f"n{i}_": (c.accumulated(b, source, f"A{m.tag}_sums"), STATES)
        for i, source in enumerate(sources)
    }
    states = [(m.momentum, c.carry, f"A{m.tag}_carried"), (m.memory, c.reach, f"A{m.tag}_rows")]
    for state, factor, name in states:
        if state is None:
            continue
        if len(terms) == 1 and factor is not None and b.plan.axes(factor) == ("t",):
            ((sums, _),) = terms.values()
            rows = b.call(name, STATES, "decayed_onto", state, factor, sums, equation="dual")
        else:
            rows = _with_state(b, terms, state, factor, name)
        terms = {"rows_": (rows, STATES)}
    return rows


def _with_state(
    b: Builder, terms: dict[str, Any], state: str, factor: str | None, name: str
) -> str:  # fmt: skip
    """Return factor ∘ state + terms, row by row."""
    expr: Any = sp.Symbol("state_", real=True)
    env: dict[str, Any] = {"state_": (state, MATRIX)}
    if factor is not None:
        axes = ("t", "k") if len(b.plan.axes(factor)) == 2 else ("t",)
        env["factor_"] = (factor, axes)
        expr = expr * sp.Symbol("factor_", real=True)
    expr = expr + sum(sp.Symbol(term, real=True) for term in terms)
    return b.map(name, expr, {**env, **terms}, "dual")


def dual_rows_through_o(p: Chunk, source: Source) -> str:
    """Return A after every row, where the step of each row goes through O."""
    b, c, m = p.b, p.c, p.m
    apart = b.rule.applied.elementwise
    steps = averages.of_chunk(p, m, source) if apart else _step_rows(p, source)
    taken = through_o(b, steps, f"O{m.tag}")
    o, a, f = (sp.Symbol(n, real=True) for n in ("O_", "A_", "f_"))
    scale = scale_of_step(b)
    if scale != 1:
        env: dict[str, Any] = {"O_": (taken, STATES)}
        env |= {n: (q, ("t",)) for n, q in b.coefficients(scale).items()}
        taken = b.map(f"O{m.tag}_scaled", scale * o, env)
    if c.log_channel is None:
        decay = c.decay or b.call("sums", ("t", "s"), "lower_ones_of", b.featured("q"))
        new_rows = b.call(f"{m.memory}_sums", STATES, "accumulate_states", decay, taken)
    else:
        new_rows = b.call(f"{m.memory}_sums", STATES, "faded_states", c.log_channel, taken)
    env = {"A_": (m.memory, MATRIX), "O_": (new_rows, STATES)}
    if c.reach is None:
        return b.map(f"{m.memory}_rows", a + o, env, "dual")
    env["f_"] = (c.reach, b.plan.axes(c.reach))
    return b.map(f"{m.memory}_rows", f * a + o, env, "dual")


def _step_rows(p: Chunk, source: Source) -> str:
    """Return S after every row."""
    b, c, m = p.b, p.c, p.m
    weights = _step_weights(p)
    steps = b.call(f"S{m.tag}_sums", STATES, "accumulate", weights, source.rows, source.keys)
    if m.momentum is None:
        return steps
    assert c.fade is not None
    s, f, new = (sp.Symbol(n, real=True) for n in ("S_", "f_", "G_"))
    env = {"S_": (m.momentum, MATRIX), "f_": (c.fade, ("t",)), "G_": (steps, STATES)}
    rows = b.map(f"S{m.tag}_rows", f * s + new, env, "momentum")
    last = b.call(f"{m.momentum}_next", MATRIX, "last_of", rows, equation="momentum")
    b.plan.following[m.momentum] = last
    return rows


def _step_weights(p: Chunk) -> str:
    """Return what S after row t holds of the gradient of row s."""
    b, c = p.b, p.c
    weights = c.faded or b.call("same", ("t", "s"), "unit_of", b.featured("q"))
    if c.banded:
        return b.product("faded_window", ("t", "s"), weights, "band")
    if c.rows > 1:
        return b.call("faded_rows", ("t", "s"), "spread_rows", weights, targets=1, sources=c.rows)
    return weights
