"""How a matrix moves: O, norms, links, and what the ends of its intervals put in place."""

from collections.abc import Callable
from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.emit import OUTPUT
from mnemic.codegen.links import linked, mirrored, values_of
from mnemic.codegen.states import MATRIX, Carried, closing, is_free, norm_axis


def through_o(b: Builder, step: str, name: str) -> str:
    """Plan O(S); a step entry by entry (``averages``) has been taken already."""
    applied = b.rule.applied
    if applied.kind == "identity" or applied.elementwise:
        return step
    axes = b.plan.axes(step)
    return b.call(name, axes, "newton_schulz", step, equation="step", steps=applied.steps)


def scale_of_step(b: Builder) -> Any:
    """Return what multiplies O(S): the gain, and the rate where it stands outside."""
    outside = b.rule.rate if b.rule.applied.outside else sp.Integer(1)
    return b.rule.gain * outside


def memory_of(b: Builder, m: Carried, dual: str, name: str, *, end: bool = False) -> str:
    """Plan W = link(A) for one matrix."""
    return linked(b, dual, m.link, name, end=end)


def normed(b: Builder, m: Carried, dual: str, name: str) -> str:
    """Scale a memory's rows or columns, centred where a layer norm acts, to their first norms."""
    if m.norms is None:
        return dual
    dual = centred(b, dual)
    return b.call(name, MATRIX, "scaled_to_norms", dual, m.norms, equation="norms",
                  axis=norm_axis(b.rule))  # fmt: skip


def centred(b: Builder, dual: str) -> str:
    """Take the means of a matrix's lines out of it, where a layer norm acts."""
    if not b.rule.applied.centred:
        return dual
    axis = norm_axis(b.rule)
    return b.call(f"{dual}_centred", MATRIX, "centred", dual, equation="norms", axis=axis)


def close(b: Builder, m: Carried, dual: str, step: str | None, *, end: bool) -> dict[int, str]:
    """Declare what the ends of a matrix's intervals put in place; return the memory by interval.

    ``dual`` is A at the interval's end, ``step`` S there (for a held matrix); with ``end`` the
    coefficients are those of a chunk's last row.
    """
    rule, plan = b.rule, b.plan
    found: dict[int, str] = {}
    acts, free = closing(rule, m.matrix), is_free(rule, m.matrix)
    if m.every > 1:
        dual = _used(b, m, dual, step, end)
        if acts <= m.every:
            dual = normed(b, m, dual, f"{m.memory}_normed")
        memory = memory_of(b, m, dual, f"W{m.tag}_used", end=end)
        plan.close(m.every, m.memory, _carry_dual(b, m, dual, memory, acts <= m.every, end))
        assert m.held is not None
        plan.close(m.every, m.held, memory)
        plan.following[m.held] = m.held
        found[m.every] = memory
    if acts <= m.every or free:
        return found
    if m.norms is not None:
        dual = normed(b, m, dual, f"{m.memory}_normed")
    fresh = m.norms is not None or m.every == 1
    memory = memory_of(b, m, dual, f"W{m.tag}_end", end=end) if fresh else found[m.every]
    if m.norms is not None or rule.retained.mode == "prox":
        plan.close(acts, m.memory, _carry_dual(b, m, dual, memory, True, end))
        found[acts] = memory
        if m.held is not None:
            plan.close(acts, m.held, memory)
    if m.anchor is not None:
        plan.close(acts, m.anchor, memory)
        plan.following[m.anchor] = m.anchor
    return found


def _carry_dual(b: Builder, m: Carried, dual: str, memory: str, acts: bool, end: bool) -> str:
    """Return the state that goes on: the dual, or ∇R(W) where a prox acts."""
    if b.rule.retained.mode != "prox" or not acts:
        return dual
    return mirrored(b, memory, f"B{m.tag}_end", end=end)


def _used(b: Builder, m: Carried, dual: str, step: str | None, end: bool) -> str:
    """Plan A + gain·O(S) at the end of a held matrix's interval; steps that gather start anew."""
    assert step is not None
    assert m.momentum is not None
    taken = through_o(b, step, f"O{m.tag}")
    expr = sp.Symbol("A_", real=True) + scale_of_step(b) * sp.Symbol("O_", real=True)
    env = {"A_": dual, "O_": taken, **values_of(b, scale_of_step(b), end)}
    if b.rule.momentum is None:
        emptied = b.call(f"S{m.tag}_emptied", MATRIX, "filled", step, value=0.0)
        b.plan.close(m.every, m.momentum, emptied)
    return b.map(f"{m.memory}_used", expr, env, "dual")


def read_anew(
    b: Builder, memories: dict[int, dict[str, str]], output: Callable[[dict[str, str], str], str]
) -> None:
    """Put a new output in place where an interval's end moves memories, which its token reads.

    ``output`` takes the memories and what the names of its quantities end in.
    """
    if b.rule.problem.spec.readout.memory != "after":
        return
    current: dict[str, str] = {}
    for every in sorted(memories):
        current |= memories[every]
        end = "_end" if len(memories) == 1 else f"_end{every}"
        b.plan.close(every, OUTPUT, output(dict(current), end))
