"""One level of a tree as a memory of its own: what fused kernels run of ``tree_forms.py``.

Token t reads the bucket of 2^i tokens where digit i of t is set. With S_i the tokens so far of the
first half of each block of 2^(i+1), emptied behind the block, the bucket is S_i in the second:

    S_i ← keeps_t (T_t S_i + writes_t w_t rᵀ),   y_t = own_t + Σ_i seen_ti T_t S_i q_t

keeps_t is 0 at a block's last token, writes_t 1 in its first half, seen_ti = λ_t,i+1 in its second
(else keeps_t = 1, and the others 0). No level depends on another, so each is a memory on chip. It
may take an aligned chunk in parts: the last row of each tells what is kept. What the tokens of an
aligned chunk read of each other, own_t, belongs to no state.
"""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder, BuilderOf
from mnemic.codegen.chunk import Chunk, decay_to_end, remaining
from mnemic.codegen.coefficients import coefficients
from mnemic.codegen.plan import Plan
from mnemic.codegen.readouts import with_bonus
from mnemic.codegen.states import alone
from mnemic.codegen.tree.tree_forms import (
    Inside,
    inside_of,
    new_of,
    own_read,
    transition,
    weights_of,
    write,
)
from mnemic.compiler.rule import Levels

MATRIX = ("v", "k")
KEEPS, WRITES, SEEN = "level_keeps", "level_writes", "level_seen"

ONE, TWO, THREE, FOUR = sp.symbols("x_ y_ f_ g_", real=True)


@dataclass(frozen=True)
class Level:
    """The plans of a tree's parts: a chunk's own rows; one level by token, and by chunk."""

    own: Plan
    token: Plan
    chunk: Plan
    weights: str
    """The quantity of ``own`` that is λ, a number for each level."""


def plans(rule: Levels) -> Level:
    """Return the plans of a rule's levels."""
    found, weights = own(rule)
    return Level(found, token(rule), chunk(rule), weights)


def own(rule: Levels) -> tuple[Plan, str]:
    """Plan what the rows of an aligned chunk read of each other; return λ beside the plan."""
    b = BuilderOf(rule, ("t",))
    p, query = _begun(b)
    weights = weights_of(b)
    read = own_read(p, inside_of(p, query), weights)
    p.b.plan.output = with_bonus(p.b, read, query, p.roles)
    return p.b.plan, weights


def token(rule: Levels) -> Plan:
    """Return the plan of one level's token."""
    b = BuilderOf(rule, ())
    b.declare_vectors()
    state = b.plan.given("W", MATRIX, state=True)
    flags = {name: b.plan.given(name, ()) for name in (KEEPS, WRITES, SEEN)}
    roles, query = b.roles(), b.featured("q")
    passed, new = transition(b, state, roles), write(b, roles)
    _following(b, state, passed, new, flags)
    read = b.call("y_level", ("v",), "recall", passed, query, equation="readout")
    b.plan.output = b.map("y", ONE * TWO, {"x_": read, "y_": flags[SEEN]}, "readout")
    return b.plan


def chunk(rule: Levels) -> Plan:
    """Return the plan of one level's chunk, in whose rows all write or none."""
    p, query = _begun(BuilderOf(rule, ("t",)), "W")
    b, state = p.b, p.m.memory
    flags = {name: b.plan.given(name, ("t",)) for name in (KEEPS, WRITES, SEEN)}
    ends = {name: b.call(f"{name}_now", (), "last", flags[name]) for name in (KEEPS, WRITES)}
    inside = inside_of(p, query)
    _following(b, state, _passed(p, inside), new_of(p, inside), ends)
    read = b.product("y_level", ("t", "v"), inside.reads, state, flip_right=True,
                     equation="readout")  # fmt: skip
    env: dict[str, Any] = {"x_": read, "y_": flags[SEEN]}
    expr = ONE * TWO
    if p.c.row_reach is not None:
        expr, env = expr * THREE, {**env, "f_": (p.c.row_reach, ("t", "v"))}
    b.plan.output = b.map("y", expr, env, "readout")
    return b.plan


def _begun(b: Builder, state: str = "") -> tuple[Chunk, str]:
    b.declare_vectors()
    memory = b.plan.given(state, MATRIX, state=True) if state else ""
    roles = b.roles()
    return Chunk(b, alone(b.rule, memory), roles, coefficients(b, False)), b.featured("q")


def _passed(p: Chunk, inside: Inside) -> str:
    """Plan the memory behind the chunk's transition."""
    b, state = p.b, p.m.memory
    reached = decay_to_end(p, p.c.reach, state, "W_kept")
    if inside.erasing is None:
        return reached
    _, keys = remaining(p, inside.sources[-1])
    lost = b.product("transition", ("k", "k"), inside.erasing, keys, flip_left=True,
                     equation="dual")  # fmt: skip
    taken = b.product("W_taken", MATRIX, state, lost, equation="dual")
    return b.map("W_passed", ONE - TWO, {"x_": reached, "y_": taken}, "dual")


def _following(b: Builder, state: str, passed: str, new: str, flags: dict[str, str]) -> None:
    env = {"x_": passed, "y_": new, "f_": flags[WRITES], "g_": flags[KEEPS]}
    b.plan.following[state] = b.map("W_next", FOUR * (ONE + TWO * THREE), env, "dual")
