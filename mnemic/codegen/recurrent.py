"""The recurrent form: the normal form of every matrix, one token at a time."""

import sympy as sp

from mnemic.codegen import keyed_rows
from mnemic.codegen.builder import Builder
from mnemic.codegen.keyed_rows import Kept
from mnemic.codegen.moves import memory_of, read_anew
from mnemic.codegen.network_passes import READOUT, as_vector, forward
from mnemic.codegen.plan import Plan
from mnemic.codegen.readouts import normalised
from mnemic.codegen.states import Carried, declare, is_free
from mnemic.codegen.token_gradient import gradients
from mnemic.codegen.updates import move
from mnemic.compiler.kernelised import folded
from mnemic.compiler.rule import Layers, Rule

Names = dict[str, str]
"""Quantities by the names of matrices, or of roles."""


def build(rule: Rule) -> Plan:
    """Plan one token of the recurrent form."""
    rule = rule if isinstance(rule, Layers) else folded(rule)
    b = Builder(rule, (), slot=("r",) if rule.window > 1 else ())
    b.declare_vectors()
    carried = declare(b)
    stabilise(b)
    roles = b.roles()
    written = gradients(b, carried, roles)
    later = _later(b, carried, roles)
    memories: Names = {}
    moved: dict[int, Names] = {}
    for m in carried:
        name = m.matrix.name
        memories[name], closed = move(b, m, written[name])
        for every, memory in closed.items():
            if memory != memories[name]:
                moved.setdefault(every, {})[name] = memory
    read = _memories_read(b, carried, memories)
    b.plan.output = _read(b, carried, read, roles, later, "")
    read_anew(b, moved, lambda now, end: _read(b, carried, {**read, **now}, roles, later, end))
    return b.plan


def stabilise(b: Builder) -> None:
    """Plan shares of old and new under a running maximum m of the weights' logarithms."""
    if not b.stabilised:
        return
    log_decay = b.needed_log_decay(b.rule.decay)
    m = b.plan.given("m", (), state=True)
    old, new, top = (sp.Symbol(s, real=True) for s in ("old_", "new_", "top_"))
    kept = b.map("log_kept", old + new, {"old_": log_decay, "new_": m})
    log_eta = b.argument("eta")
    following = b.map("m_next", sp.Max(old, new), {"old_": kept, "new_": log_eta}, "readout")
    b.plan.following[m] = following
    b.shares = {
        "kept_share": b.map("kept", sp.exp(old - top), {"old_": kept, "top_": following}),
        "new_share": b.map("new", sp.exp(new - top), {"new_": log_eta, "top_": following}),
    }


def _later(b: Builder, carried: tuple[Carried, ...], roles: Names) -> Kept | None:
    """Plan the kept keys and coefficients after the token, ``None`` where no keys are kept."""
    kept = [m.kept for m in carried if m.kept is not None]
    if not kept:
        return None
    key = b.featured("k") if isinstance(b.rule, Layers) else roles["write"]
    return keyed_rows.grow(b, kept[0], key)


def _memories_read(b: Builder, carried: tuple[Carried, ...], after: Names) -> Names:
    """Return the memory of every matrix that the token's query meets."""
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


def _read(
    b: Builder, carried: tuple[Carried, ...], memories: Names, roles: Names, later: Kept | None,
    end: str,
) -> str:  # fmt: skip
    """Plan M(W, φ(q)), and what stands between it and the output."""
    by_name, query = {m.matrix.name: m for m in carried}, b.featured("q")

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        kept = by_name[matrix].kept
        if kept is not None and later is not None:
            return _recalled(b, kept, later, memories[matrix], x, name)
        return b.call(name, as_vector(b, x), "recall", memories[matrix], x, equation=equation)

    network, tag = b.rule.network, f"_q{end}"
    if not network.linear:
        return forward(b, network, apply, query, b.vector("q", "k"), READOUT, tag)[network.output]
    (m,) = carried
    name = f"{network.output}{tag}" if isinstance(b.rule, Layers) else "y"
    read = apply(m.matrix.name, query, name, "readout")
    return normalised(b, read, query, roles)


def _recalled(
    b: Builder, kept: Kept, later: Kept, rows: str, query: str, name: str
) -> str:  # fmt: skip
    """Plan the read-out of kept keys' rows: those after the token, unless it reads the past."""
    assert b.rule.kernels is not None
    where = b.rule.problem.spec.readout.memory
    keys, counts = (later.keys, later.counts) if where == "after" else (kept.keys, kept.counts)
    if where == "anchor":
        counts = kept.anchor
    return keyed_rows.recall(b, b.rule.kernels.read, keys, rows, counts, query, name, "readout")
