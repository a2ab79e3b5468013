"""Steps entry by entry: running averages of a gradient, and an expression of it and of them.

X_t = β X_{t−1} + f x_t with f = 1 − β, of a sum β = f = 1; and c_t = β c_{t−1} + (1 − β) for the
weight that X has gathered, which is 1 − Πβ: X/c is a mean whose weights add up to one, from the
first token on. Inside a chunk both are linear recurrences of gradients that are known before any
step is taken.
"""

from collections.abc import Callable
from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.chunk.parts import Chunk, Source
from mnemic.codegen.states import MATRIX, Carried
from mnemic.compiler.running import GRADIENT, Running

STATES = ("t", *MATRIX)
OLD, NEW, SHARE = (sp.Symbol(name, real=True) for name in ("X_", "x_", "f_"))
Found = dict[Any, str]
"""Quantities by the symbol that a step has for them."""


# -- token by token --------------------------------------------------------------------------


def of_token(b: Builder, m: Carried, gradient: str) -> str:
    """Plan the step after a token, from g = −G."""

    def mean(average: Running, new: str) -> Found:
        state = m.averages[average.state]
        return {average.after: _mean(b, average, state, new), average.before: state}

    return _step(b, m, _quantities(b, m, gradient, mean), ())


def _mean(b: Builder, average: Running, state: str, new: str) -> str:
    """Plan X after the token; return it, or X/c where the average is corrected."""
    equation = average.equation
    share, env = _fresh(b, state, average)
    env |= {"X_": state, "x_": new}
    following = b.map(f"{state}_next", average.decay * OLD + share * NEW, env, equation)
    b.plan.following[state] = following
    if not average.corrected:
        return following
    gathered = _weight(b, average.weight)
    env = {**env, "X_": gathered}
    total = b.map(f"{average.weight}_next", average.decay * OLD + share, env, equation)
    b.plan.following[gathered] = total
    return _over(b, following, total, f"{state}_mean", ())


def _fresh(b: Builder, state: str, average: Running) -> tuple[Any, dict[str, Any]]:
    """Return 1 − β, rounded before anything is added to it, and the quantities of it and of β."""
    env: dict[str, Any] = dict(b.coefficients(average.decay))
    if not average.share.free_symbols:
        return average.share, env
    return SHARE, {**env, "f_": b.map(f"{state}_fresh", average.share, env)}


def _weight(b: Builder, name: str) -> str:
    """Return the weight that all matrices' averages have gathered, a state declared once."""
    return name if name in b.plan.graph else b.plan.given(name, (), state=True)


# -- a chunk ---------------------------------------------------------------------------------


def of_chunk(p: Chunk, m: Carried, source: Source) -> str:
    """Plan the step after every row of a chunk."""
    b, step = p.b, p.b.rule.applied.step

    def means(average: Running, new: str) -> Found:
        state = m.averages[average.state]
        rows, read = _means(p, average, state, new)
        if not step.has(average.before):
            return {average.after: read}
        before = b.call(f"{state}_before", STATES, "delayed_states", rows, state)
        return {average.after: read, average.before: before}

    return _step(b, m, _quantities(b, m, _gradients(p, m, source), means), ("t",))


def _gradients(p: Chunk, m: Carried, source: Source) -> str:
    """Plan −G of every row, a sum over the window of its token."""
    b, name = p.b, f"G{m.tag}"
    if p.c.banded:
        return b.call(name, STATES, "accumulate", "band", source.rows, source.keys,
                      equation="gradient")  # fmt: skip
    if p.c.rows > 1:
        own = b.call("same", ("t", "s"), "unit_of", b.featured("q"))
        own = b.call("own_window", ("t", "s"), "spread_rows", own, targets=1, sources=p.c.rows)
        return b.call(name, STATES, "accumulate", own, source.rows, source.keys,
                      equation="gradient")  # fmt: skip
    u, k = sp.Symbol("u", real=True), sp.Symbol("kay", real=True)
    env = {"u": (source.rows, ("t", "v")), "kay": (source.keys, ("t", "k"))}
    return b.map(name, u * k, env, "gradient")


def _means(p: Chunk, average: Running, state: str, new: str) -> tuple[str, str]:
    """Plan X after every row; return it, and what the step reads of it: X itself, or X/c."""
    b, equation = p.b, average.equation
    factor = b.row_map(f"{state}_decay", average.decay)
    fresh = b.row_map(f"{state}_fresh", average.share)
    left = b.call(f"{state}_left", ("t", "s"), "products", factor)
    fade = b.call(f"{state}_fade", ("t",), "running_product", factor)
    shares = b.map(f"{state}_shares", SHARE * NEW, {"f_": left, "x_": (fresh, ("s",))})
    sums = b.call(f"{state}_sums", STATES, "accumulate_states", shares, new)
    env = {"f_": (fade, ("t",)), "X_": (state, MATRIX), "x_": (sums, STATES)}
    rows = b.map(f"{state}_rows", SHARE * OLD + NEW, env, equation)
    b.plan.following[state] = b.call(f"{state}_next", MATRIX, "last_of", rows, equation=equation)
    if not average.corrected:
        return rows, rows
    weights = _weights(b, average.weight, left, fresh, fade)
    return rows, _over(b, rows, weights, f"{state}_mean", ("t",))


def _weights(b: Builder, weight: str, left: str, fresh: str, fade: str) -> str:
    """Plan c, the weight that an average has gathered, after every row."""
    gathered = _weight(b, weight)
    sums = b.call(f"{weight}_sums", ("t",), "matrix_rows", left, fresh)
    env = {"f_": (fade, ("t",)), "X_": (gathered, ()), "x_": (sums, ("t",))}
    rows = b.map(f"{weight}_rows", SHARE * OLD + NEW, env)
    b.plan.following[gathered] = b.call(f"{weight}_next", (), "last", rows)
    return rows


# -- both ------------------------------------------------------------------------------------


def _quantities(
    b: Builder, m: Carried, gradient: str, mean: Callable[[Running, str], Found]
) -> Found:
    """Return the gradient, and averages of expressions of it, by the symbols of the step."""
    found = {GRADIENT: gradient}
    for average in b.rule.applied.averages:
        entry = b.map(f"{average.state}{m.tag}_entry", average.entry.subs(GRADIENT, NEW),
                      {"x_": gradient}, average.equation)  # fmt: skip
        found |= mean(average, entry)
    return found


def _over(b: Builder, total: str, weight: str, name: str, rows: tuple[str, ...]) -> str:
    """Plan X/c, zero while nothing has been gathered."""
    x, c = sp.Symbol("x_", real=True), sp.Symbol("c_", real=True)
    expr = sp.Piecewise((x / c, c > 0), (0, True))
    return b.map(name, expr, {"x_": total, "c_": (weight, rows)}, "means")


def _step(b: Builder, m: Carried, found: Found, rows: tuple[str, ...]) -> str:
    """Plan the step, each root a quantity of its own; zero where a quotient's parts are all zero.

    √x has no slope at 0, and the slope of x/(√s + ε) there is 1/ε: a few tokens in a row whose
    gradients are zero would leave the range of float32. Both are 0 here.
    """
    step, axes = b.rule.applied.valued, (*rows, *MATRIX)
    env: dict[str, Any] = {n: (q, rows) for n, q in b.coefficients(step).items()}
    names = {symbol: sp.Symbol(f"{symbol.name}_", real=True) for symbol in found}
    env |= {names[symbol].name: (quantity, axes) for symbol, quantity in found.items()}
    step, roots = step.subs(names), []
    for i, root in enumerate(sorted((p for p in step.atoms(sp.Pow) if _is_root(p)), key=str)):
        taken = sp.Symbol(f"root{i}_", real=True)
        expr = sp.Piecewise((root, root.base > 0), (0, True))
        env[taken.name] = (b.map(f"root{i}{m.tag}", expr, env, "step"), axes)
        step = step.subs(root, taken)
        roots.append(taken)
    above, below = sp.fraction(step)
    if below.free_symbols & {*roots, *names.values()}:
        entries = sorted(above.free_symbols & {*names.values()}, key=str)
        parts = [root > 0 for root in roots] + [sp.Ne(x, 0) for x in entries]
        step = sp.Piecewise((step, sp.Or(*parts)), (0, True))
    return b.map(f"O{m.tag}", step, env, "step")


def _is_root(power: Any) -> bool:
    return bool(power.exp == sp.Rational(1, 2) and power.base.free_symbols)
