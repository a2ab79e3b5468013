"""The recurrent form of a memory of layers: the normal form of every matrix, token by token."""

from typing import Any

import sympy as sp

from mnemic.codegen.builder import WINDOW_WEIGHT, Builder
from mnemic.codegen.deep import averages
from mnemic.codegen.deep.moves import (
    close,
    memory_of,
    normed,
    prox_base,
    read_anew,
    scale_of_step,
    through_o,
)
from mnemic.codegen.deep.passes import (
    PREDICTION,
    READOUT,
    as_key,
    as_vector,
    backward,
    forward,
)
from mnemic.codegen.deep.states import MATRIX, Carried, closing, declare, is_free
from mnemic.codegen.kept import append_rows, grow, hold_rows, recall
from mnemic.codegen.links import decayed_in_the_dual
from mnemic.codegen.plan import Plan
from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Rule


def build(rule: Rule) -> Plan:
    """The plan of one token."""
    b = Builder(rule, (), slot=("r",) if rule.window > 1 else ())
    b.unit_rate = rule.applied.outside
    b.declare_vectors()
    carried = declare(b)
    written = _gradient(b, carried)
    b.unit_rate = False
    later = _later(b, carried)
    memories: dict[str, str] = {}
    moved: dict[int, dict[str, str]] = {}
    for m in carried:
        name = m.matrix.name
        memories[name], closed = _move(b, m, written[name])
        for every, memory in closed.items():
            moved.setdefault(every, {})[name] = memory
    read = _memories_read(b, carried, memories)
    b.plan.output = _read(b, read, later, "")
    read_anew(b, moved, lambda now, end: _read(b, {**read, **now}, later, end))
    return b.plan


def _later(b: Builder, carried: tuple[Carried, ...]) -> dict[str, str]:
    """By matrix behind a kernel the keys that the token's query meets."""
    kept = {m.matrix.name: m.kept for m in carried if m.kept is not None}
    if not kept:
        return {}
    after = grow(b, next(iter(kept.values())), b.featured("k"), None)
    where = b.rule.problem.spec.readout.memory
    return {name: after.keys if where == "after" else k.keys for name, k in kept.items()}


# -- the gradient ----------------------------------------------------------------------------


def _gradient(b: Builder, carried: tuple[Carried, ...]) -> dict[str, str]:
    """−η ∇_W ℓ of every matrix (without η, where it multiplies O(S) instead)."""
    network, roles = b.rule.network, b.roles()
    seen = {m.matrix.name: _reference(b, m) for m in carried}
    rowed = b.plan.axes(roles["value"])[:-1] != ()
    forth, pull = ("recall_rows", "pull_rows") if rowed else ("recall", "pull")

    keys = {m.matrix.name: m.kept.keys for m in carried if m.kept is not None}

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        if matrix in keys:
            return recalled(b, keys[matrix], seen[matrix], x, name, equation)
        return b.call(name, as_vector(b, x), forth, seen[matrix], x, equation=equation)

    def back(matrix: str, x: str, name: str, equation: str) -> str:
        return b.call(name, as_vector(b, x), pull, seen[matrix], x, equation=equation)

    found = forward(b, network, apply, roles["predict"], b.vector("k", "k"), PREDICTION)
    factor = -b.rate * b.rule.weight * (WINDOW_WEIGHT if b.slot else sp.Integer(1))
    error = b.error(b.rule.error.signal, found[network.output], roles["value"], roles["predict"],
                    "u", factor)  # fmt: skip
    outer = backward(b, network, back, found, error, roles["write"])
    return {
        name: pair[0] if name in keys else _outer(b, f"G{name[1:]}", *pair)
        for name, pair in outer.items()
    }


def _outer(b: Builder, name: str, rows: str, keys: str) -> str:
    if "r" in b.plan.axes(rows):
        return b.product(name, MATRIX, rows, keys, flip_left=True, equation="gradient")
    u, k = sp.Symbol("u", real=True), sp.Symbol("kay", real=True)
    env = {"u": (rows, as_vector(b, rows)), "kay": (keys, as_key(b, keys))}
    return b.map(name, u * k, env, "gradient")


def _reference(b: Builder, m: Carried) -> str:
    """W_ref of one matrix."""
    if m.still is not None:
        return m.still
    seen, free = m.memory, is_free(b.rule, m.matrix)
    if free and b.rule.seen != 1 and b.rule.retained.mirror != sym.w:
        return decayed_in_the_dual(b, m.memory, b.rule.seen, m.tag)
    if b.rule.seen != 1:
        expr = b.rule.seen * sp.Symbol("A_", real=True)
        env = {"A_": m.memory, **b.coefficients(b.rule.seen)}
        seen = b.map(f"{m.memory}_decayed", expr, env, "prediction")
    if free and (b.rule.seen == 1 or b.rule.retained.link.normaliser == "none"):
        return seen
    return memory_of(b, m, seen, f"W{m.tag}_seen")


# -- the update ------------------------------------------------------------------------------


def _move(b: Builder, m: Carried, gradient: str) -> tuple[str, dict[int, str]]:
    """The states of one matrix after the token: its memory, and what interval ends make of it."""
    if m.kept is not None:
        return _grown(b, m, gradient)
    step = _stepped(b, m, gradient)
    dual = _dual(b, m, None if m.every > 1 else step)
    if m.every > 1:
        assert m.held is not None
        b.plan.following[m.memory] = dual
        return m.held, close(b, m, dual, step, end=False)
    if closing(b.rule, m.matrix) == 1:
        dual = normed(b, m, dual, f"{m.memory}_normed")
    memory = memory_of(b, m, dual, f"W{m.tag}_now")
    b.plan.following[m.memory] = memory if is_free(b.rule, m.matrix) else dual
    if m.norms is not None:
        b.plan.following[m.norms] = m.norms
    return memory, close(b, m, dual, step, end=False)


def _grown(b: Builder, m: Carried, rows: str) -> tuple[str, dict[int, str]]:
    """Rows over kept keys: decay ∘ U + gain·θ S of those that are there, and the token's own."""
    rule, u = b.rule, sp.Symbol("U_", real=True)
    old, env = rule.decay * u, dict[str, Any]({"U_": m.memory, **b.coefficients(rule.decay)})
    if m.momentum is not None:
        faded = rule.momentum * sp.Symbol("S_", real=True)
        own = {"S_": m.momentum, **b.coefficients(rule.momentum)}
        left = b.map(f"{m.momentum}_left", faded, own, "momentum")
        b.plan.following[m.momentum] = append_rows(b, f"{m.momentum}_next", left, rows, "momentum")
        old += rule.gain * faded
        env |= {**own, **b.coefficients(rule.gain)}
    gained = b.map(f"{m.memory}_new", rule.gain * sp.Symbol("G_", real=True),
                   {"G_": rows, **b.coefficients(rule.gain)}, "dual")  # fmt: skip
    kept = b.map(f"{m.memory}_left", old, env, "dual")
    dual = append_rows(b, f"{m.memory}_next", kept, gained, "dual")
    b.plan.following[m.memory] = dual
    closed = close(b, m, dual, None, end=False)
    if m.anchor is not None:
        hold_rows(b, m.anchor, newest(b))
    return dual, closed


def newest(b: Builder) -> str:
    """The token's own key."""
    key = b.featured("k")
    return b.call("newest_key", ("k",), "newest", key) if "r" in b.plan.axes(key) else key


def recalled(b: Builder, keys: str, rows: str, x: str, name: str, equation: str) -> str:
    """Σ_i u_i κ(k_i·x), with κ1 for predictions and κ2 for read-outs."""
    assert b.rule.kernels is not None
    kernel = b.rule.kernels.read if equation == "readout" else b.rule.kernels.predict
    return recall(b, kernel, keys, rows, None, x, name, equation)


def _stepped(b: Builder, m: Carried, gradient: str) -> str:
    """S_t, which a held matrix without momentum gathers; or the step entry by entry."""
    if b.rule.applied.elementwise:
        return averages.of_token(b, m, gradient)
    if m.momentum is None:
        return gradient
    theta = b.rule.momentum if b.rule.momentum is not None else sp.Integer(1)
    expr = theta * sp.Symbol("S_", real=True) + sp.Symbol("G_", real=True)
    env: dict[str, Any] = {"S_": m.momentum, "G_": gradient, **b.coefficients(theta)}
    following = b.map(f"{m.momentum}_next", expr, env, "momentum")
    b.plan.following[m.momentum] = following
    return following


def _dual(b: Builder, m: Carried, step: str | None) -> str:
    """decay ∘ A + gain·O(S); without a step the decay alone."""
    base = prox_base(b, m) if is_free(b.rule, m.matrix) else m.memory
    expr = b.rule.decay * sp.Symbol("A_", real=True)
    env: dict[str, Any] = {"A_": base, **b.coefficients(b.rule.decay)}
    if step is not None:
        expr += scale_of_step(b) * sp.Symbol("O_", real=True)
        env |= {"O_": through_o(b, step, f"O{m.tag}"), **b.coefficients(scale_of_step(b))}
    return b.map(f"{m.memory}_next", expr, env, "dual")


# -- the read-out ----------------------------------------------------------------------------


def _memories_read(
    b: Builder, carried: tuple[Carried, ...], after: dict[str, str]
) -> dict[str, str]:
    """The memory of every matrix that the token's query meets."""
    where = b.rule.problem.spec.readout.memory
    if where == "after":
        return after
    found = {}
    for m in carried:
        name = m.matrix.name
        if m.still is not None and (where == "anchor" or m.every > 1):
            found[name] = m.still if where == "anchor" else str(m.held)
        elif is_free(b.rule, m.matrix):
            found[name] = m.memory
        else:
            found[name] = memory_of(b, m, m.memory, f"W{m.tag}_before")
    return found


def _read(b: Builder, memories: dict[str, str], keys: dict[str, str], tag: str) -> str:
    """M(W, φ(q))."""

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        if matrix in keys:
            return recalled(b, keys[matrix], memories[matrix], x, name, equation)
        return b.call(name, as_vector(b, x), "recall", memories[matrix], x, equation=equation)

    query = b.featured("q")
    found = forward(
        b, b.rule.network, apply, query, b.vector("q", "k"), READOUT, f"_q{tag}"
    )  # fmt: skip
    return found[b.rule.network.output]
