"""A form's plan in two kernels: what no carried state reaches, and the scan of the rest."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import networkx as nx

from mnemic.codegen.cut import cut
from mnemic.codegen.plan import Given, Plan
from mnemic.codegen.tiled.divided import costs
from mnemic.codegen.tiled.divided.where import handed_on
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import Held, Layout


@dataclass(frozen=True)
class Handed:
    """A quantity of a chunk that one kernel stores for others; in the call's own type if these only
    take it as an operand of products, which ``round`` it anyway."""

    name: str
    sizes: tuple[str, ...]
    rounded: bool


@dataclass(frozen=True)
class Divided:
    """The layouts of both kernels, and what the first hands to the second."""

    parallel: Layout
    scan: Layout
    handed: tuple[Handed, ...]
    whole: Layout
    """The layout of the form in one kernel."""


def divided(lay: Layout) -> Divided | None:
    """Divide a chunk's plan into two kernels; None where nothing outside the scan is worth a
    kernel."""
    plan = lay.plan
    phases = plan.phases()
    before = {q.name for q in phases.before if not isinstance(q.op, Given)}
    later = {q.name for q in phases.scan}.union(
        q.name for closing in phases.closings for q in closing.statements
    )
    names = handed_on(lay, before, later)
    if not plan.states() or not any(_took_product(plan, name) for name in names):
        return None
    rest = cut(plan, names)
    tiles = tuple(handed(lay, name, (rest,)) for name in names)
    return Divided(
        laid(replace(lay, split=""), only(plan, names), ()), laid(lay, rest, names), tiles, lay
    )


def _took_product(plan: Plan, name: str) -> bool:
    """Return whether a quantity is, or is made of, a product of matrices or a system's solution."""
    return any(heavy(plan[n]) for n in {name, *nx.ancestors(plan.graph, name)})


def handed(lay: Layout, name: str, plans: Collection[Plan]) -> Handed:
    """Return a quantity as it is handed to later plans: rounded, if these only multiply it."""
    readers = [plan[n] for plan in plans if name in plan.graph for n in plan.graph.successors(name)]
    return Handed(name, lay.sizes(name), costs.rounds(lay, name, readers))


def only(plan: Plan, names: Collection[str]) -> Plan:
    """Return the plan that gives these quantities alone."""
    found = replace(
        plan.emptied(), following={}, closed={}, output="", results={n: n for n in names}
    )
    found.graph = plan.graph.copy()
    found.keep(found.needed())
    return found


def laid(lay: Layout, plan: Plan, handed: Collection[str]) -> Layout:
    """Lay a part of a plan out on tiles as the whole of it lies; ``handed`` are loaded."""
    read = set(plan.arguments())
    found = replace(
        lay, plan=plan, rows=tuple(row for row in lay.rows if row.name in read),
        states=tuple(state for state in lay.states if state.name in plan.graph),
        given=tuple(Held(name, lay.sizes(name)) for name in handed if name in read),
        tiles=plan.ordered(),
    )  # fmt: skip
    found.known.update(lay.known)
    return found
