"""Adam's running means of a gradient and of its square, entry by entry, and their quotient.

X_t = β X_{t−1} + (1 − β) x_t, and c_t = β c_{t−1} + (1 − β) for the weight that X has gathered,
which is 1 − Πβ: X/c is a mean whose weights add up to one, from the first token on. Inside a chunk
both are linear recurrences of gradients that are known before any step is taken.
"""

from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.chunk import Chunk
from mnemic.codegen.deep.states import MATRIX, Carried
from mnemic.codegen.systems import Source

STATES = ("t", *MATRIX)
OLD, NEW, SHARE = (sp.Symbol(name, real=True) for name in ("X_", "x_", "f_"))


# -- token by token --------------------------------------------------------------------------


def of_token(b: Builder, m: Carried, gradient: str) -> str:
    """Ŝ/(√ŝ + ε) after a token, from −G."""
    square = b.map(f"G{m.tag}_squared", NEW**2, {"x_": gradient}, "squares")
    mean = _mean(b, m.momentum, "S_weight", b.rule.momentum, gradient, "momentum")
    size = _mean(b, m.squares, "squares_weight", b.rule.applied.squares, square, "squares")
    return _quotient(b, m, mean, size)


def _mean(
    b: Builder, state: str | None, weight: str, decay: Any, new: str, equation: str
) -> str:  # fmt: skip
    """X/c; what forgets all at every token is the new entry itself."""
    if state is None:
        return new
    share, env = _fresh(b, state, decay)
    env |= {"X_": state, "x_": new}
    following = b.map(f"{state}_next", decay * OLD + share * NEW, env, equation)
    b.plan.following[state] = following
    gathered = _weight(b, weight)
    env = {**env, "X_": gathered}
    total = b.map(f"{weight}_next", decay * OLD + share, env, equation)
    b.plan.following[gathered] = total
    return _over(b, following, total, f"{state}_mean", ())


def _fresh(b: Builder, state: str, decay: Any) -> tuple[Any, dict[str, Any]]:
    """1 − β, rounded before anything is added to it, and the quantities of its symbols and β's."""
    env: dict[str, Any] = dict(b.coefficients(decay))
    if not decay.free_symbols:
        return 1 - decay, env
    return SHARE, {**env, "f_": b.map(f"{state}_fresh", 1 - decay, env)}


def _weight(b: Builder, name: str) -> str:
    """The weight that all matrices' averages have gathered."""
    return name if name in b.plan.graph else b.plan.given(name, (), state=True)


# -- a chunk ---------------------------------------------------------------------------------


def of_chunk(p: Chunk, m: Carried, source: Source) -> str:
    """The same after every row."""
    b = p.b
    gradients = _gradients(p, m, source)
    squared = b.map(f"G{m.tag}_squared", NEW**2, {"x_": gradients}, "squares")
    mean = _means(p, m.momentum, "S_weight", b.rule.momentum, gradients, "momentum")
    size = _means(p, m.squares, "squares_weight", b.rule.applied.squares, squared, "squares")
    return _quotient(b, m, mean, size)


def _gradients(p: Chunk, m: Carried, source: Source) -> str:
    """−G of every row, a sum over the window of its token."""
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


def _means(
    p: Chunk, state: str | None, weight: str, decay: Any, new: str, equation: str
) -> str:  # fmt: skip
    """X/c after every row."""
    if state is None:
        return new
    b = p.b
    factor = b.row_map(f"{state}_decay", decay)
    fresh = b.row_map(f"{state}_fresh", 1 - decay)
    left = b.call(f"{state}_left", ("t", "s"), "products", factor)
    fade = b.call(f"{state}_fade", ("t",), "running_product", factor)
    shares = b.map(f"{state}_shares", SHARE * NEW, {"f_": left, "x_": (fresh, ("s",))})
    sums = b.call(f"{state}_sums", STATES, "accumulate_states", shares, new)
    env = {"f_": (fade, ("t",)), "X_": (state, MATRIX), "x_": (sums, STATES)}
    rows = b.map(f"{state}_rows", SHARE * OLD + NEW, env, equation)
    b.plan.following[state] = b.call(f"{state}_next", MATRIX, "last_of", rows, equation=equation)
    return _over(b, rows, _weights(b, weight, left, fresh, fade), f"{state}_mean", ("t",))


def _weights(b: Builder, weight: str, left: str, fresh: str, fade: str) -> str:
    """c after every row."""
    gathered = _weight(b, weight)
    sums = b.call(f"{weight}_sums", ("t",), "matrix_rows", left, fresh)
    env = {"f_": (fade, ("t",)), "X_": (gathered, ()), "x_": (sums, ("t",))}
    rows = b.map(f"{weight}_rows", SHARE * OLD + NEW, env)
    b.plan.following[gathered] = b.call(f"{weight}_next", (), "last", rows)
    return rows


# -- both ------------------------------------------------------------------------------------


def _over(b: Builder, total: str, weight: str, name: str, rows: tuple[str, ...]) -> str:
    """X/c, zero while nothing has been gathered."""
    x, c = sp.Symbol("x_", real=True), sp.Symbol("c_", real=True)
    expr = sp.Piecewise((x / c, c > 0), (0, True))
    return b.map(name, expr, {"x_": total, "c_": (weight, rows)}, "means")


def _quotient(b: Builder, m: Carried, mean: str, size: str) -> str:
    """Ŝ/(√ŝ + ε), with a derivative of 0 while every gradient has been zero.

    The true one is 1/ε there, and a few such tokens in a row would leave the range of float32.
    """
    x, s = sp.Symbol("x_", real=True), sp.Symbol("s_", real=True)
    root = sp.Piecewise((sp.sqrt(s), s > 0), (0, True))
    taken = b.map(f"squares{m.tag}_root", root, {"s_": size}, "step")
    divided = x / (s + sp.Float(b.rule.applied.epsilon))
    expr = sp.Piecewise((divided, (s > 0) | sp.Ne(x, 0)), (0, True))
    return b.map(f"O{m.tag}", expr, {"x_": mean, "s_": taken}, "step")
