"""How a token moves a matrix: S gathers steps, A decays and takes O(S), W = link(A)."""

from typing import Any

import sympy as sp

from mnemic.codegen import averages
from mnemic.codegen.builder import Builder
from mnemic.codegen.keyed_rows import append_rows, hold_rows, newest
from mnemic.codegen.links import linked, mirrored, rooted
from mnemic.codegen.moves import close, memory_of, normed, scale_of_step, through_o
from mnemic.codegen.states import Carried, closing, is_free
from mnemic.codegen.token_gradient import Written
from mnemic.compiler.rule import Layers

Moved = tuple[str, dict[int, str]]
"""The memory after the token, and what ends of intervals make of it."""


def move(b: Builder, m: Carried, written: Written) -> Moved:
    """Move the states of one matrix."""
    if m.kept is not None:
        return _settled(b, m, _grown(b, m, written))
    step, direct = _stepped(b, m, written)
    if m.every > 1:
        assert m.held is not None
        dual = b.plan.following[m.memory] = _dual(b, m, {})
        return m.held, close(b, m, dual, step, end=False)
    dual = _dual(b, m, _terms(b, m, step, direct))
    if closing(b.rule, m.matrix) == 1:
        dual = normed(b, m, dual, f"{m.memory}_normed")
    if m.norms is not None:
        b.plan.following[m.norms] = m.norms
    return _settled(b, m, dual)


def _settled(b: Builder, m: Carried, dual: str) -> Moved:
    """Plan W of the dual, and move the state that goes on."""
    multiplied = b.rule.retained.mode == "multiplicative"
    memory = dual if multiplied else memory_of(b, m, dual, f"W{m.tag}_now")
    b.plan.following[m.memory] = memory if is_free(b.rule, m.matrix) else dual
    closed = close(b, m, dual, None, end=False)
    if m.anchor is not None and m.kept is not None:
        hold_rows(b, m.anchor, newest(b))
    return memory, closed


def _stepped(b: Builder, m: Carried, written: Written) -> tuple[str | None, list[str]]:
    """Plan S_t, which a held matrix without momentum gathers too, or an optimizer's step entry by
    entry; return it and what goes past it."""
    rule = b.rule
    if rule.applied.elementwise:
        ((gradient, _),) = written
        return averages.of_token(b, m, gradient), []
    if m.momentum is None:
        return None, [name for name, _ in written]
    slow = [name for name, through in written if through == "momentum" or m.every > 1]
    direct = [name for name, _ in written if name not in slow]
    theta = rule.momentum if rule.momentum is not None else sp.Integer(1)
    env = {f"{'G_' if isinstance(rule, Layers) else 'g'}{i}": name for i, name in enumerate(slow)}
    expr = theta * sp.Symbol("S_", real=True) + _total(env)
    env |= {"S_": m.momentum, **b.coefficients(theta)}
    step = b.plan.following[m.momentum] = b.map(f"{m.momentum}_next", expr, env, "momentum")
    return step, direct


def _terms(b: Builder, m: Carried, step: str | None, direct: list[str]) -> dict[str, str]:
    """Return what enters the dual, by symbols: O of a step, and what goes past it.

    A sum is printed in the order of its symbols, and kernels that have been measured keep theirs.
    """
    first = isinstance(b.rule, Layers)
    if step is None:
        direct = [through_o(b, name, f"O{m.tag}") for name in direct]
    terms = {f"{'O_' if first else 'term'}{i}": name for i, name in enumerate(direct)}
    if step is not None:
        terms["O_" if first else "momentum"] = through_o(b, step, f"O{m.tag}")
    return terms


def _total(terms: dict[str, str]) -> Any:
    return sp.Add(*(sp.Symbol(term, real=True) for term in terms))


def _dual(b: Builder, m: Carried, terms: dict[str, str]) -> str:
    """Plan decay ∘ A + gain·O(S); without a step the decay alone."""
    rule, base = b.rule, m.memory
    if rule.retained.mode == "prox" and is_free(rule, m.matrix):
        base = mirrored(b, m.memory, f"B{m.tag}")
    step, decay = _total(terms), b.decay * rule.row_decay
    if rule.retained.mode == "multiplicative":
        scaled = decay * sp.Symbol("W_", real=True)
        kept = b.map("kept", scaled, {"W_": m.memory, **b.coefficients(scaled)}, "dual")
        return _multiplied(b, kept, b.map("step", step, terms))
    expr = decay * sp.Symbol("A_", real=True) + scale_of_step(b) * step
    env: dict[str, Any] = {**terms, "A_": base, **b.coefficients(decay)}
    env |= b.coefficients(scale_of_step(b)) if terms else {}
    return b.map(f"{m.memory}_next", expr, env, "dual")


def _multiplied(b: Builder, kept: str, step: str) -> str:
    link = b.rule.retained.link
    if link.normaliser == "root":
        return rooted(b, link, step, kept, "W_next")
    factor = linked(b, step, link, "g")
    one, two = sp.Symbol("kept_", real=True), sp.Symbol("g_", real=True)
    return b.map("W_next", one * two, {"kept_": kept, "g_": factor}, "link")


def _grown(b: Builder, m: Carried, written: Written) -> str:
    """Plan rows over kept keys: what is left of those that are there, and a token's own."""
    rule = b.rule
    every = {f"term{i}": name for i, (name, _) in enumerate(written)}
    old = b.decay * rule.row_decay * sp.Symbol("U_", real=True)
    env: dict[str, Any] = {"U_": m.memory, **b.coefficients(b.decay * rule.row_decay)}
    if m.momentum is not None:
        faded = rule.momentum * sp.Symbol("S_", real=True)
        own = {"S_": m.momentum, **b.coefficients(rule.momentum)}
        old, env = old + rule.gain * faded, {**env, **own, **b.coefficients(rule.gain)}
        slow = {f"term{i}": name for i, (name, through) in enumerate(written)
                if through == "momentum"}  # fmt: skip
        rows = b.map(f"{m.momentum}_new", _total(slow), slow)
        left = b.map(f"{m.momentum}_left", faded, own, "momentum")
        b.plan.following[m.momentum] = append_rows(b, f"{m.momentum}_next", left, rows, "momentum")
    left = b.map(f"{m.memory}_left", old, env, "dual")
    own = {**every, **b.coefficients(rule.gain)}
    fresh = b.map(f"{m.memory}_new", rule.gain * _total(every), own, "dual")
    return append_rows(b, f"{m.memory}_next", left, fresh, "dual")
