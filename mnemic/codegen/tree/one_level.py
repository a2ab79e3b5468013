"""One level of a tree as a memory of its own: what fused kernels run of ``tree_forms.py``.

Token t reads the bucket of 2^i tokens where digit i of t is set. With S_i the tokens so far of the
first half of each block of 2^(i+1), begun anew with the block, the bucket is S_i in the second:

    S_i ← T_t (keeps_t S_i) + writes_t w_t rᵀ,   y_t = own_t + Σ_i seen_ti T_t S_i q_t

keeps_t is 0 at a block's first token, writes_t 1 in its first half, seen_ti = λ_t,i+1 in its second
(else keeps_t = 1, and the others 0). No level depends on another, so each is a memory on chip.
What the tokens of an aligned chunk read of each other, own_t, belongs to no state.
"""

from dataclasses import dataclass, replace
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

ONE, TWO, THREE = sp.symbols("x_ y_ f_", real=True)


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
    begun = b.map("W_begun", ONE * TWO, {"x_": state, "y_": flags[KEEPS]}, "dual")
    passed, new = transition(b, begun, roles), write(b, roles)
    _following(b, state, passed, new, flags[WRITES])
    read = b.call("y_level", ("v",), "recall", passed, query, equation="readout")
    b.plan.output = b.map("y", ONE * TWO, {"x_": read, "y_": flags[SEEN]}, "readout")
    return b.plan


def chunk(rule: Levels) -> Plan:
    """Return the plan of one level's chunk, in which flags are the same at every row."""
    p, query = _begun(BuilderOf(rule, ("t",)), "W")
    b, state = p.b, p.m.memory
    flags = {name: b.plan.given(name, ("t",)) for name in (KEEPS, WRITES, SEEN)}
    keeps, writes = (b.call(f"{n}_now", (), "last", flags[n]) for n in (KEEPS, WRITES))
    begun = b.map("W_begun", ONE * TWO, {"x_": state, "y_": keeps}, "dual")
    inside = inside_of(p, query)
    _following(b, state, _passed(p, inside, begun), new_of(p, inside), writes)
    read = b.product("y_level", ("t", "v"), inside.reads, begun, flip_right=True,
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


def _passed(p: Chunk, inside: Inside, begun: str) -> str:
    """Plan the memory behind the chunk's transition."""
    b = p.b
    over = replace(p, m=alone(b.rule, begun))
    reached = decay_to_end(over, p.c.reach, begun, "W_kept")
    if inside.erasing is None:
        return reached
    _, keys = remaining(p, inside.sources[-1])
    lost = b.product("transition", ("k", "k"), inside.erasing, keys, flip_left=True,
                     equation="dual")  # fmt: skip
    taken = b.product("W_taken", MATRIX, begun, lost, equation="dual")
    return b.map("W_passed", ONE - TWO, {"x_": reached, "y_": taken}, "dual")


def _following(b: Builder, state: str, passed: str, new: str, writes: str) -> None:
    env = {"x_": passed, "y_": new, "f_": writes}
    b.plan.following[state] = b.map("W_next", ONE + TWO * THREE, env, "dual")
