"""What the parts of a chunk's plan share, and the rows that they work on."""

from dataclasses import dataclass

from mnemic.codegen.builder import Builder
from mnemic.codegen.coefficients import Coefficients, channel_decay
from mnemic.codegen.states import States
from mnemic.compiler.rule import Rule

MATRIX = ("v", "k")


@dataclass(frozen=True)
class Chunk:
    """What the parts of a chunk's plan share."""

    b: Builder
    states: States
    roles: dict[str, str]
    c: Coefficients
    tag: str = ""
    """Tells one matrix's quantities from another's."""


def takes_band(rule: Rule) -> bool:
    """Whether a window is a band of weights: one error a key, free of the step's coefficients."""
    if rule.window == 1 or rule.shared_rows or channel_decay(rule):
        return False
    return not rule.error.signal.free_symbols & {s.symbol for s in rule.scalars}


def rows_of_roles(b: Builder) -> dict[str, str]:
    """The roles' vectors, windows laid flat into rows."""
    roles = b.roles()
    if not b.slot:
        return roles
    return {
        role: b.call(f"{role}_rows", ("s", b.plan.axes(name)[-1]), "flat_rows", name)
        for role, name in roles.items()
    }
