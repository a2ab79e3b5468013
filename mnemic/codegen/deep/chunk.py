"""The chunk form of a memory of layers whose gradients see memories that stand still.

The steps of a chunk are known before any is taken: one pass of the network over all its keys gives
each matrix rows δ and keys a, and with them A_t = reach_t A_0 + carry_t S_0 + Σ_s mix_ts δ_s a_sᵀ
read layer by layer without forming a memory a token. Where a link,
or O at every token, is not linear, the memories of a chunk's tokens are formed.
"""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.builder import WINDOW_WEIGHT, Builder
from mnemic.codegen.chunk import (
    Chunk,
    carried,
    carry_keys,
    carry_momentum,
    dual_rows,
    kept,
    linear_read,
    rows_of_roles,
    takes_band,
)
from mnemic.codegen.coefficients import Coefficients, coefficients
from mnemic.codegen.deep import averages
from mnemic.codegen.deep.moves import close, memory_of, read_anew, scale_of_step, through_o
from mnemic.codegen.deep.passes import PREDICTION, READOUT, as_vector, backward, forward
from mnemic.codegen.kept import similarity
from mnemic.codegen.links import linked
from mnemic.codegen.plan import Plan
from mnemic.codegen.states import MATRIX, Carried, declare, sees_memory
from mnemic.codegen.systems import Source, source_of
from mnemic.compiler.network import FEATURES
from mnemic.compiler.rule import Rule

STATES = ("t", *MATRIX)


@dataclass(frozen=True)
class Moved:
    """One matrix within a chunk: how its rows are read, and the memory after the last."""

    chunk: Chunk
    carried: Carried
    source: Source
    states: str | None
    last: str

    @property
    def name(self) -> str:
        """The matrix's name."""
        return self.carried.matrix.name


def build(rule: Rule) -> Plan:
    """The plan of one chunk."""
    b = _builder(rule)
    all_carried = declare(b)
    c = coefficients(b, takes_band(rule))
    roles = rows_of_roles(b)
    sources = _sources(b, all_carried, roles, c)
    b.unit_rate = False
    parts: list[Moved] = []
    moved: dict[int, dict[str, str]] = {}
    for m in all_carried:
        chunk = Chunk(b, m.states, roles, c, m.tag)
        part, closed = _move(chunk, m, sources[m.matrix.name])
        parts.append(part)
        for every, memory in closed.items():
            moved.setdefault(every, {})[part.name] = memory
    b.plan.output = _read(b, parts)
    last = {part.name: part.last for part in parts}
    stays = {part.name for part in parts if part.carried.kept is not None}
    read_anew(b, moved, lambda now, end: _read_last(b, {**last, **now}, stays, end))
    return b.plan


def _builder(rule: Rule) -> Builder:
    banded = takes_band(rule)
    slot = ("r",) if rule.window > 1 and not banded else ()
    b = Builder(rule, ("t",), slot=slot, flat=bool(slot))
    b.vector_rows = ("s",) if banded else None
    b.unit_rate = rule.applied.outside
    b.declare_vectors()
    return b


# -- the gradient ----------------------------------------------------------------------------


def _sources(
    b: Builder, all_carried: tuple[Carried, ...], roles: dict[str, str], c: Coefficients
) -> dict[str, Source]:
    """The rows and keys that every matrix is written with, −η taken into the rows."""
    network = b.rule.network
    by_name = {m.matrix.name: m for m in all_carried}
    seen = {name: str(m.still) for name, m in by_name.items()}

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        return _still_read(b, by_name[matrix], seen[matrix], x, name, equation)

    def back(matrix: str, x: str, name: str, equation: str) -> str:
        return b.product(name, as_vector(b, x), x, seen[matrix], equation=equation)

    found, prediction = {FEATURES: roles["predict"]}, None
    if sees_memory(b.rule):
        found = forward(b, network, apply, roles["predict"], b.raw("k"), PREDICTION)
        prediction = found[network.output]
    error = b.error(b.rule.error.signal, prediction, roles["value"], roles["predict"], "u",
                    _factor(b))  # fmt: skip
    outer = backward(b, network, back, found, error, roles["write"])
    through = "memory" if b.rule.momentum is None else "momentum"
    return {name: source_of(b, c, *pair, through) for name, pair in outer.items()}


def _still_read(b: Builder, m: Carried, still: str, x: str, name: str, equation: str) -> str:
    """W x of a memory that stands still for the chunk, through κ where it is rows over keys."""
    axes, kernels = as_vector(b, x), b.rule.kernels
    if m.kept is None or kernels is None:
        return b.product(name, axes, x, still, flip_right=True, equation=equation)
    product = b.product(f"{x}_{m.kept.keys}", (*axes[:-1], "n"), x, m.kept.keys, flip_right=True)
    kernel = kernels.read if equation == "readout" else kernels.predict
    weights = similarity(b, kernel.expr, product)
    return b.product(name, axes, weights, still, equation=equation)


def _factor(b: Builder) -> Any:
    """−η γ; a band of a window's weights holds both itself."""
    if b.rule.window > 1 and not b.slot:
        return sp.Integer(-1)
    return -b.rate * b.rule.weight * (WINDOW_WEIGHT if b.slot else sp.Integer(1))


# -- the update ------------------------------------------------------------------------------


def _move(p: Chunk, m: Carried, source: Source) -> tuple[Moved, dict[int, str]]:
    """The states of one matrix after a chunk, and what interval ends make of its memory."""
    b = p.b
    if m.norms is not None:
        b.plan.following[m.norms] = m.norms
    if m.every > 1:
        return _held(p, m, source)
    states = None
    if b.rule.applied.kind != "identity":
        states = _through_o_rows(p, m, source)
        dual = b.call(f"{m.memory}_next", MATRIX, "last_of", states, equation="dual")
    else:
        source = _gained(b, source)
        dual = carried(p, (source,))
        if m.momentum is not None:
            carry_momentum(p, (source,))
        if not m.link.identity:
            states = dual_rows(p, (source,))
    b.plan.following[m.memory] = dual
    if states is not None:
        states = linked(b, states, m.link, f"W{m.tag}_rows")
    last = memory_of(b, m, dual, f"W{m.tag}_last", end=True)
    closed = close(b, m, dual, None, end=True)
    carry_keys(p, (source,))
    return Moved(p, m, source, states, last), closed


def _gained(b: Builder, source: Source) -> Source:
    """The retention's gain on the rows, which momentum and a window's band hold themselves."""
    banded = b.rule.window > 1 and not b.slot
    if b.rule.gain == 1 or b.rule.momentum is not None or banded:
        return source
    u = sp.Symbol("u_", real=True)
    env = {"u_": source.rows, **b.row_coefficients(b.rule.gain)}
    rows = b.map(f"{source.rows}_gained", b.rule.gain * u, env)
    return Source(rows, source.keys, source.through, source.remain, source.fade)


def _held(p: Chunk, m: Carried, source: Source) -> tuple[Moved, dict[int, str]]:
    """A matrix that stands still for the chunk: A decays, S gathers."""
    b = p.b
    assert m.held is not None
    assert m.momentum is not None
    dual = kept(p, p.c.reach, m.memory, f"{m.memory}_next")
    b.plan.following[m.memory] = dual
    if b.rule.momentum is not None:
        carry_momentum(p, (source,))
    else:
        new = b.product(f"S{m.tag}_new", MATRIX, _gathered(p, source), source.keys,
                        flip_left=True, equation="momentum")  # fmt: skip
        one, two = sp.Symbol("S_", real=True), sp.Symbol("G_", real=True)
        total = b.map(f"{m.momentum}_next", one + two, {"S_": m.momentum, "G_": new}, "momentum")
        b.plan.following[m.momentum] = total
    step = b.plan.following[m.momentum]
    return Moved(p, m, source, None, m.held), close(b, m, dual, step, end=True)


def _gathered(p: Chunk, source: Source) -> str:
    """Rows times how often a window's band takes them in."""
    b = p.b
    if not p.c.banded:
        return source.rows
    counts = b.call("taken", ("s",), "total_rows", "band")
    u, f = sp.Symbol("u_", real=True), sp.Symbol("f_", real=True)
    env = {"u_": (source.rows, ("s", "v")), "f_": (counts, ("s",))}
    return b.map(f"{source.rows}_taken", u * f, env)


def _through_o_rows(p: Chunk, m: Carried, source: Source) -> str:
    """A after every row, with O at every row."""
    b, c = p.b, p.c
    apart = b.rule.applied.elementwise
    steps = averages.of_chunk(p, m, source) if apart else _step_rows(p, m, source)
    taken = through_o(b, steps, f"O{m.tag}")
    o, a, f = (sp.Symbol(n, real=True) for n in ("O_", "A_", "f_"))
    scale = scale_of_step(b)
    if scale != 1:
        env: dict[str, Any] = {"O_": (taken, STATES)}
        env |= {n: (q, ("t",)) for n, q in b.coefficients(scale).items()}
        taken = b.map(f"O{m.tag}_scaled", scale * o, env)
    decay = c.decay or b.call("sums", ("t", "s"), "lower_ones_of", b.featured("q"))
    new_rows = b.call(f"{m.memory}_sums", STATES, "accumulate_states", decay, taken)
    env = {"A_": (m.memory, MATRIX), "O_": (new_rows, STATES)}
    if c.reach is None:
        return b.map(f"{m.memory}_rows", a + o, env, "dual")
    return b.map(f"{m.memory}_rows", f * a + o, {**env, "f_": (c.reach, ("t",))}, "dual")


def _step_rows(p: Chunk, m: Carried, source: Source) -> str:
    """S after every row."""
    b, c = p.b, p.c
    weights = _step_weights(p, source)
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


def _step_weights(p: Chunk, source: Source) -> str:
    """What S after row t holds of the gradient of row s."""
    b, c = p.b, p.c
    weights = c.faded
    if weights is None:
        weights = b.call("same", ("t", "s"), "unit_of", b.featured("q"))
    if c.banded:
        return b.product("faded_window", ("t", "s"), weights, "band")
    if c.rows > 1:
        return b.call("faded_rows", ("t", "s"), "spread_rows", weights, targets=1, sources=c.rows)
    return weights


# -- the read-out ----------------------------------------------------------------------------


def _read(b: Builder, parts: list[Moved]) -> str:
    """M(W_t, φ(q_t)) for every row."""
    where = b.rule.problem.spec.readout.memory
    by_name = {part.name: part for part in parts}

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        assert equation == "readout"
        return _applied(b, by_name[matrix], x, name, where)

    query = b.featured("q")
    found = forward(b, b.rule.network, apply, query, b.vector("q", "k"), READOUT, "_q")
    return found[b.rule.network.output]


def _applied(b: Builder, part: Moved, x: str, name: str, where: str) -> str:
    """W_t x_t of one matrix, row by row."""
    m, axes = part.carried, as_vector(b, x)
    if where == "anchor" or m.every > 1:
        still = m.still if where == "anchor" else m.held
        return _still_read(b, m, str(still), x, name, "readout")
    if part.states is None:
        return linear_read(part.chunk, (part.source,), x, name, before=where == "before")
    states = part.states
    if where == "before":
        first = memory_of(b, m, m.memory, f"W{m.tag}_first")
        states = b.call(f"W{m.tag}_before", STATES, "delayed_states", states, first)
    return b.call(name, axes, "recall", states, x, equation="readout")


def _read_last(b: Builder, memories: dict[str, str], stays: set[str], end: str) -> str:
    """The rows' outputs with the last one read from memories that have moved.

    Rows over kept keys stay as they are, and with them what the last query found there.
    """

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        if matrix in stays:
            return b.call(name, ("v",), "last_row", name.removesuffix(end), equation=equation)
        return b.call(name, as_vector(b, x), "recall", memories[matrix], x, equation=equation)

    query = b.call("phi_q_end", ("k",), "last_row", b.featured("q"))
    raw = b.call("q_end", ("k",), "last_row", b.vector("q", "k"))
    found = forward(b, b.rule.network, apply, query, raw, READOUT, f"_q{end}")
    last = found[b.rule.network.output]
    return b.call(f"y{end}", ("t", "v"), "replaced_last", b.plan.output, last, equation="readout")
