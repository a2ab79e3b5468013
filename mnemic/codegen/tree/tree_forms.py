"""Forms of rules whose read-out weighs the levels of a Fenwick tree apart (``compiler.shares``).

Every bucket of past tokens follows the rule's own transition, and the step's write goes to a
bucket of its own. In a chunk that is aligned with the tree, rows read the carried buckets at fixed
levels, and each other at the level of the highest digit in which their numbers differ: with
y = Q W₀ᵀ + P w the chunk form of the plain rule, it is y_t = Σ_ℓ λ_tℓ Q_t W_ℓᵀ + ((P ∘ λ) w)_t.
"""

from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder, BuilderOf
from mnemic.codegen.chunk import (
    Chunk,
    Source,
    decay_to_end,
    inverse_of,
    mixing_of,
    remaining,
    seen_by_channel,
    source_of,
    step_factor,
)
from mnemic.codegen.coefficients import coefficients
from mnemic.codegen.plan import Plan
from mnemic.codegen.readouts import with_bonus
from mnemic.codegen.state_reads import reached
from mnemic.codegen.states import alone
from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Levels

MATRIX = ("v", "k")
LEVELS = ("l", "v", "k")

ONE, TWO = sp.Symbol("x_", real=True), sp.Symbol("y_", real=True)


def weights_of(b: BuilderOf[Levels]) -> str:
    """Return λ, a number for each level."""
    weights = b.row_map("level_weight", b.rule.problem.value("levels"))
    if "l" in b.plan.axes(weights):
        return weights
    return b.call("level_weights", (*b.rows, "l"), "every_level", weights, count=b.rule.levels)


# -- token by token --------------------------------------------------------------------------


def recurrent(rule: Levels) -> Plan:
    """Return the plan of one token."""
    b = BuilderOf(rule, ())
    b.declare_vectors()
    memory = b.plan.given("W", LEVELS, state=True)
    roles, query = b.roles(), b.featured("q")
    kept = transition(b, memory, roles)
    new = write(b, roles)
    own = b.call("y_own", ("v",), "recall", new, query, equation="readout")
    past = b.call("y_past", ("l", "v"), "recall_levels", kept, query, equation="readout")
    read = b.call("y", ("v",), "weigh_levels", own, past, weights_of(b), equation="readout")
    b.plan.output = with_bonus(b, read, query, roles)
    _move(b, memory, kept, new)
    return b.plan


def reading(rule: Levels) -> Plan:
    """Return the plan of a query that is read without a write: the buckets as they stand."""
    b = BuilderOf(rule, ())
    query = b.featured("q")
    memory = b.plan.given("W", LEVELS, state=True)
    b.plan.output = b.call("y", ("v",), "read_levels", memory, query, weights_of(b),
                           equation="readout")  # fmt: skip
    return b.plan


def transition(b: Builder, memory: str, roles: dict[str, str]) -> str:
    """Plan a step without its write, of one level or all: decay ∘ W_ℓ − gain·η slope (W_ℓ p) rᵀ."""
    rule, lead = b.rule, b.plan.axes(memory)[:-2]
    decay = rule.decay * rule.row_decay
    scaled = decay * ONE
    env: dict[str, Any] = {"x_": memory, **b.coefficients(decay)}
    kept = b.map("W_kept", scaled, env, "dual")
    if rule.error.constant:
        return kept
    seen, part = memory, rule.seen
    if rule.problem.spec.retention.order == "before":
        part = part * rule.row_decay
    if part != 1:
        seen = b.map("seen", part * ONE, {"x_": memory, **b.coefficients(part)}, "prediction")
    function = "recall_levels" if lead else "recall"
    y_hat = b.call("y_hat", (*lead, "v"), function, seen, roles["predict"],
                   equation="prediction")  # fmt: skip
    factor = -b.rate * rule.gain * rule.error.slope
    env = {"x_": y_hat, **_with_kappa(b, factor, roles, ())}
    erased = b.map("erased", factor * ONE, env, "error")
    outer = b.map("erasure", ONE * TWO, {"x_": erased, "y_": roles["erase"]}, "gradient")
    return b.map("W_passed", ONE + TWO, {"x_": kept, "y_": outer}, "dual")


def _with_kappa(
    b: Builder, expr: Any, roles: dict[str, str], rows: tuple[str, ...]
) -> dict[str, str]:
    """Return quantities for an expression's coefficients, and for κ = ‖φ(k)‖² if it has it."""
    found = b.coefficients(expr)
    if expr.has(sym.kappa):
        found["kappa"] = b.call("kappa", rows, "squared_norm", roles["predict"])
    return found


def write(b: Builder, roles: dict[str, str]) -> str:
    """Plan what the step adds to a memory of zero."""
    rule = b.rule
    written = b.error(rule.error.offset, None, roles["value"], roles["predict"], "written",
                      -b.rate * rule.gain)  # fmt: skip
    pair = {"x_": written, "y_": roles["write"]}
    return b.map("W_new", ONE * TWO, pair, "gradient")


def _move(b: Builder, memory: str, kept: str, new: str) -> None:
    b.plan.following[memory] = b.call("W_next", LEVELS, "merged", kept, new, _ends(b),
                                      equation="levels")  # fmt: skip


def _ends(b: Builder) -> str:
    """Return the tokens of the document when a token, or a chunk, is done."""
    return "ends" if "ends" in b.plan.graph else b.plan.given("ends", ())


# -- chunk by chunk --------------------------------------------------------------------------


@dataclass(frozen=True)
class Inside:
    """The plain rule in a chunk: y = reads W₀ᵀ + attends w, and what is left at its end.

    ``erasing`` are the rows that take from a state (None where nothing does), with their keys.
    """

    reads: str
    attends: str
    written: str
    sources: tuple[Source, ...]
    erasing: str | None = None


def chunk(rule: Levels) -> Plan:
    """Return the plan of one chunk, whose rows are a power of two that divides its position."""
    b = BuilderOf(rule, ("t",))
    b.declare_vectors()
    memory = b.plan.given("W", LEVELS, state=True)
    roles = b.roles()
    p = Chunk(b, alone(rule, memory), roles, coefficients(b, False))
    query = b.featured("q")
    inside = inside_of(p, query)
    read = _read(p, inside, weights_of(b))
    b.plan.output = with_bonus(b, read, query, roles)
    _move(b, memory, _passed(p, inside), new_of(p, inside))
    return b.plan


def inside_of(p: Chunk, query: str) -> Inside:
    """Plan the rule in a chunk, as if all tokens were in one bucket."""
    return _additive(p, query) if p.b.rule.error.constant else _affine(p, query)


def _written(p: Chunk) -> str:
    b, error = p.b, p.b.rule.error
    return b.error(error.offset, None, p.roles["value"], p.roles["predict"], "written",
                   step_factor(b))  # fmt: skip


def _additive(p: Chunk, query: str) -> Inside:
    b, c = p.b, p.c
    written = _written(p)
    attends = c.scores(b, query, p.roles["write"], "memory", before=False)
    source = source_of(p, written, p.roles["write"], "memory")
    return Inside(reached(b, query, c.reach), attends, written, (source,))


def _affine(p: Chunk, query: str) -> Inside:
    """Solve (I + D L) x = −D ŷ for erased rows, ŷ of the state and of the written rows."""
    b, c, roles = p.b, p.c, p.roles
    erases = c.scores(b, query, roles["erase"], "memory", before=False)
    inverse = inverse_of(p, mixing_of(p, roles["predict"], roles["erase"], "memory"))
    seen = reached(b, seen_by_channel(p, roles["predict"]), c.reach_seen)
    erasing = b.product("erasing", ("t", "k"), inverse, _steep(p, "steep", seen), equation="error")
    taken = b.product("taken", ("t", "k"), erases, erasing)
    reads = b.map("reads", ONE - TWO, {"x_": reached(b, query, c.reach), "y_": taken})
    if b.rule.split:
        return _split_keys(p, query, erases, inverse, Inside(reads, "", _written(p), (), erasing))
    written = _written(p)
    attends = b.product("attends", ("t", "s"), erases, inverse)
    rows = b.product("u", ("t", "v"), inverse, written, equation="error")
    source = source_of(p, rows, roles["write"], "memory")
    return Inside(reads, attends, written, (source,), erasing)


def _split_keys(p: Chunk, query: str, erases: str, inverse: str, inside: Inside) -> Inside:
    """Plan written and erased rows under keys of their own."""
    b, c, roles = p.b, p.c, p.roles
    writes = c.scores(b, query, roles["write"], "memory", before=False)
    mixing = mixing_of(p, roles["predict"], roles["write"], "memory")
    lost = b.product("lost", ("t", "s"), inverse, _steep(p, "steep_mixing", mixing))
    off = b.product("attends_lost", ("t", "s"), erases, lost)
    attends = b.map("attends", ONE - TWO, {"x_": writes, "y_": off})
    taken = b.product("u_taken", ("t", "v"), lost, inside.written, equation="error")
    rows = b.map("u_lost", -ONE, {"x_": taken})
    sources = (
        source_of(p, inside.written, roles["write"], "memory"),
        source_of(p, rows, roles["erase"], "memory"),
    )
    return replace(inside, attends=attends, sources=sources)


def _steep(p: Chunk, name: str, rows: str) -> str:
    """Plan η slope ∘ rows."""
    factor = -step_factor(p.b) * p.b.rule.error.slope
    env: dict[str, Any] = {"x_": rows, **_with_kappa(p.b, factor, p.roles, ("t",))}
    return p.b.map(name, factor * ONE, env)


def own_read(p: Chunk, inside: Inside, weights: str) -> str:
    """Plan what a chunk's rows read of each other: ((P ∘ λ) w)_t."""
    b, c = p.b, p.c
    mask = b.call("level_mask", ("t", "s"), "level_mask", weights, equation="readout")
    env = {"x_": (inside.attends, ("t", "s")), "y_": mask}
    attends = b.map("attends_levels", ONE * TWO, env, "readout")
    if c.log_row is not None:
        return b.call("y_new", ("t", "v"), "decayed_mix", attends, inside.written, c.log_row,
                      equation="readout")  # fmt: skip
    return b.product("y_new", ("t", "v"), attends, inside.written, equation="readout")


def _read(p: Chunk, inside: Inside, weights: str) -> str:
    b, c = p.b, p.c
    new = own_read(p, inside, weights)
    old = b.call("y_old", ("t", "v"), "recall_buckets", inside.reads, p.m.memory, weights,
                 _ends(b), equation="readout")  # fmt: skip
    if c.row_reach is not None:
        old = b.map("y_old_rows", ONE * TWO, {"x_": old, "y_": (c.row_reach, ("t", "v"))})
    return b.map("y", ONE + TWO, {"x_": old, "y_": new}, "readout")


def _passed(p: Chunk, inside: Inside) -> str:
    """Plan every bucket behind the chunk's transition."""
    b, memory = p.b, p.m.memory
    reached_end = decay_to_end(p, p.c.reach, memory, "W_kept")
    if inside.erasing is None:
        return reached_end
    _, keys = remaining(p, inside.sources[-1])
    taken = b.call("W_taken", LEVELS, "through_transition", memory, inside.erasing, keys, _ends(b),
                   equation="dual")  # fmt: skip
    return b.map("W_passed", ONE - TWO, {"x_": reached_end, "y_": taken}, "dual")


def new_of(p: Chunk, inside: Inside) -> str:
    """Plan what the chunk wrote, as its end sees it."""
    b = p.b
    parts = [
        b.product(f"W_new{i or ''}", MATRIX, *remaining(p, source), flip_left=True, equation="dual")
        for i, source in enumerate(inside.sources)
    ]
    if len(parts) == 1:
        return parts[0]
    return b.map("W_news", ONE + TWO, {"x_": parts[0], "y_": parts[1]}, "dual")
