"""What the parts of a chunk's plan share: its rows, their keys, and what is written with them."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.builder import WINDOW_WEIGHT, Builder
from mnemic.codegen.coefficients import Coefficients, channel_decay
from mnemic.codegen.states import Carried
from mnemic.compiler.rule import Layers, Rule


@dataclass(frozen=True)
class Chunk:
    """One matrix within a chunk: the plan, the matrix's states, the keys by role, the decays."""

    b: Builder
    m: Carried
    roles: dict[str, str]
    c: Coefficients


@dataclass(frozen=True)
class Source:
    """Rows written with their keys, and what is left of them at the chunk's end."""

    rows: str
    keys: str
    through: str
    remain: str | None
    fade: str | None


@dataclass(frozen=True)
class Moved:
    """A matrix within a chunk: what it is written with, and its memory after the last row."""

    chunk: Chunk
    sources: tuple[Source, ...]
    last: str
    rows: str | None = None
    """The memory that every row reads, unless it is a sum of what was written."""
    duals: str | None = None
    """The sums of what was written that ``rows`` are made of, one a row, where there are such."""

    @property
    def name(self) -> str:
        """The matrix's name."""
        return self.chunk.m.matrix.name


def takes_band(rule: Rule) -> bool:
    """Return whether a window is a band of weights: one error a key, without the step's
    coefficients."""
    if rule.window == 1 or rule.shared_rows or channel_decay(rule):
        return False
    return not rule.error.signal.free_symbols & {s.symbol for s in rule.scalars}


def rows_of_roles(b: Builder) -> dict[str, str]:
    """Return the roles' vectors, windows laid flat into rows."""
    roles = b.roles()
    if not b.slot:
        return roles
    return {
        role: b.call(f"{role}_rows", ("s", b.plan.axes(name)[-1]), "flat_rows", name)
        for role, name in roles.items()
    }


def step_factor(b: Builder) -> Any:
    """Return −η γ, what multiplies an error in its step; a band of weights holds both itself.

    The gain stands here too, unless it multiplies momentum or the steps of several matrices.
    """
    rule = b.rule
    if rule.window > 1 and not b.slot:
        return sp.Integer(-1)
    weight = WINDOW_WEIGHT if b.slot else sp.Integer(1)
    return -b.rate * rule.weight * (rule.gain if gains_at_once(rule) else 1) * weight


def gains_at_once(rule: Rule) -> bool:
    """Return whether the retention's gain multiplies the errors themselves."""
    return rule.momentum is None and not isinstance(rule, Layers)


def source_of(p: Chunk, rows: str, keys: str, through: str) -> Source:
    """Return written rows with their keys, and what of them is left at the chunk's end."""
    b, c = p.b, p.c
    mix = c.mix[through]
    remain = None if mix is None else b.call(f"{mix}_end", ("s",), "last_row", mix)
    fade = c.fades
    if fade is not None and c.banded:
        fade = b.call("fades_window", ("s",), "vector_matrix", fade, "band")
    if fade is not None and c.rows > 1 and c.log_channel is None:
        fade = b.call("fades_rows", ("s",), "repeat", fade, times=c.rows)
    return Source(rows, keys, through, remain, fade)
