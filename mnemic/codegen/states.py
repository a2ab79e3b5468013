"""What is carried for each matrix of a memory, and when it moves."""

from dataclasses import dataclass, field, replace
from typing import Any

from mnemic.codegen import keyed_rows
from mnemic.codegen.builder import Builder
from mnemic.codegen.keyed_rows import ROWS, Kept
from mnemic.compiler import symbols as sym
from mnemic.compiler.network import Matrix
from mnemic.compiler.retention import Link
from mnemic.compiler.rule import Rule

MATRIX = ("v", "k")


@dataclass(frozen=True)
class Carried:
    """One matrix: its states by role, its link, and its intervals.

    ``memory`` A (W under an identity link), ``momentum`` S (also where steps gather), ``held`` the
    memory since the last use of O, ``anchor`` the memory at the last chunk's end, ``norms``. Behind
    a kernel ``memory`` is U, rows over ``kept`` keys, as momentum and anchor are.
    """

    matrix: Matrix
    link: Link
    memory: str
    tag: str = ""
    """Tells one matrix's quantities from another's."""
    momentum: str | None = None
    held: str | None = None
    anchor: str | None = None
    norms: str | None = None
    averages: dict[str, str] = field(default_factory=dict)
    """By name of the rule's running averages the states that hold them."""
    kept: Kept | None = None
    """The kept keys, where the matrix sees features that a kernel alone tells."""

    @property
    def every(self) -> int:
        """Tokens between uses of O."""
        return self.matrix.every

    @property
    def still(self) -> str | None:
        """The state that the gradient sees, unless it sees the memory of the last token."""
        return self.anchor or self.held


def declare(b: Builder) -> tuple[Carried, ...]:
    """Declare the states of every matrix."""
    return tuple(_declare(b, matrix) for matrix in b.rule.network.matrices)


def _declare(b: Builder, matrix: Matrix) -> Carried:
    rule, tag = b.rule, b.rule.tag(matrix)
    gathers = rule.momentum is not None or matrix.every > 1
    kept = _keep_rows(b, matrix) if rule.keeps_rows(matrix) else None
    axes = MATRIX if kept is None else ROWS

    def state(name: str, wanted: bool, axes: tuple[str, ...] = axes) -> str | None:
        return b.plan.given(f"{name}{tag}", axes, state=True) if wanted else None

    memory = state(dual_name(rule, matrix), True)
    assert memory is not None
    return Carried(
        matrix=matrix,
        link=link_of(rule, matrix),
        memory=memory,
        tag=tag,
        momentum=state("S", gathers),
        held=state("held", matrix.every > 1),
        anchor=state("anchor", anchored(rule, matrix)),
        averages={a.state: str(state(a.state, True)) for a in rule.applied.averages},
        norms=state("norms", rule.applied.normalize != "none" and kept is None, (norm_axis(rule),)),
        kept=kept,
    )


def alone(rule: Rule, memory: str) -> Carried:
    """Return what is carried for one matrix whose only state is its memory."""
    return Carried(rule.network.matrices[0], rule.retained.link, memory)


def _keep_rows(b: Builder, matrix: Matrix) -> Kept | None:
    """Return the kept keys, which matrices of one input share."""
    if "K" in b.plan.graph:
        return Kept("K")
    return keyed_rows.declare(
        b, momentum=b.rule.momentum is not None, anchor=anchored(b.rule, matrix)
    )


def dual_name(rule: Rule, matrix: Matrix) -> str:
    """Return A, or W where the memory is its own dual (or the state, as under a prox at every
    token); U where it is kept as rows."""
    if rule.keeps_rows(matrix):
        return "U"
    plain = rule.retained.mode == "dual" and rule.retained.link.identity
    return "W" if plain or is_free(rule, matrix) else "A"


def anchored(rule: Rule, matrix: Matrix) -> bool:
    """Return whether the memory of the last chunk's end is a state beside the held one."""
    asks = rule.problem.spec.readout.memory == "anchor"
    return rule.anchor > matrix.every and (asks or rule.sees_memory)


def closing(rule: Rule, matrix: Matrix) -> int:
    """Return the interval after which norms and a prox act: the anchor, else that of O."""
    return rule.anchor if rule.anchor > 1 else matrix.every


def is_free(rule: Rule, matrix: Matrix) -> bool:
    """Return whether the state is W itself although the link is no identity."""
    return rule.retained.mode != "dual" and closing(rule, matrix) == 1


def norm_axis(rule: Rule) -> str:
    """Return the axis that keeps the norms: ``v``, one a row, or ``k``, one a column."""
    return "v" if rule.applied.normalize == "rows" else "k"


def link_of(rule: Rule, matrix: Matrix, *, stepped: bool = True) -> Link:
    """Return the link with the scale of this matrix, where each has its own; of a dual that no step
    was taken on unless ``stepped``."""
    link = rule.retained.link if stepped else rule.retained.without_step
    own = sym.coefficient(f"scale{matrix.name.removeprefix('W')}")
    if rule.problem.scalar(str(own)) is None:
        return link
    scale: Any = own
    return replace(link, scale=scale)
