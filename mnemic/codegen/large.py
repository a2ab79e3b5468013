"""Parts of a chunk's scan that hold a matrix for every row: computed a few memories at a time.

Such a part is as large as a state for every token; its inputs and outputs are not. So it becomes a
function of its own, which `ops.by_memory` calls for as many memories as a cache holds, and which
the gradient calls again instead of keeping its results.
"""

from dataclasses import dataclass
from itertools import chain

import networkx as nx

from mnemic.codegen.plan import Plan, Quantity

MATRIX_OF_ROWS = 3
"""Axes of what is large: a row's, and a matrix's two."""


def large(axes: tuple[str, ...]) -> bool:
    """Return whether a quantity holds a matrix for every row."""
    return len(axes) >= MATRIX_OF_ROWS and axes[0] == "t"


@dataclass(frozen=True)
class Part:
    """Quantities that are computed together.

    Args:
        members: in order of computation.
        inputs: what they read from outside.
        outputs: what others read of them; none is large.
    """

    members: tuple[Quantity, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its function."""
        return "_and_".join(self.outputs) + "_of_rows"


def parts(plan: Plan, scan: tuple[Quantity, ...]) -> tuple[Quantity | Part, ...]:
    """Return the scan with its large parts put together, in an order that can be computed."""
    inside = {q.name for q in scan}
    graph = plan.graph.subgraph(inside)
    many = {q.name for q in scan if large(q.axes)}
    groups = [_closed(graph, group) for group in _touching(graph, many)]
    groups = _join_overlapping([group for group in groups if group])
    made = [_part(plan, scan, group) for group in groups]
    found = [part for part in made if part is not None]
    return _ordered(scan, found)


def _touching(graph: nx.DiGraph, many: set[str]) -> list[set[str]]:
    """Return large quantities that read one another, each group with what reads it."""
    groups = nx.weakly_connected_components(graph.subgraph(many))
    return [set(group) | set(chain(*(graph.succ[n] for n in group))) for group in groups]


def _closed(graph: nx.DiGraph, group: set[str]) -> set[str]:
    """Return a group with all that lies on a way from one of its members to another."""
    after = set[str]().union(*(nx.descendants(graph, n) for n in group))
    before = set[str]().union(*(nx.ancestors(graph, n) for n in group))
    return group | (after & before)


def _join_overlapping(groups: list[set[str]]) -> list[set[str]]:
    """Return groups that share nothing: those that do are one."""
    found = list[set[str]]()
    for group in groups:
        shared = [other for other in found if other & group]
        found = [other for other in found if not other & group]
        found.append(group.union(*shared))
    return found


def _part(plan: Plan, scan: tuple[Quantity, ...], group: set[str]) -> Part | None:
    """Return the group as a part, or None where something large would leave or enter it."""
    members = tuple(q for q in scan if q.name in group)
    read = dict.fromkeys(n for q in members for n in q.reads() if n not in group)
    needed = plan.needed() - group
    elsewhere = {n for q in members for n in plan.graph.succ[q.name] if n in needed}
    outputs = [
        q.name for q in members
        if plan.is_end(q.name) or not elsewhere.isdisjoint(plan.graph.succ[q.name])
    ]  # fmt: skip
    passing = [*read, *outputs]
    if not outputs or any(large(plan.axes(name)) for name in passing):
        return None
    return Part(members, tuple(read), tuple(outputs))


def _ordered(scan: tuple[Quantity, ...], found: list[Part]) -> tuple[Quantity | Part, ...]:
    """Return the statements, each part in the place where all that it reads is there."""
    home = {q.name: index for index, part in enumerate(found) for q in part.members}
    place = {q.name: index for index, q in enumerate(scan)}
    graph = nx.DiGraph()
    for q in scan:
        own = ("part", home[q.name]) if q.name in home else ("one", place[q.name])
        graph.add_node(own)
        for read in q.reads():
            if read in place:
                other = ("part", home[read]) if read in home else ("one", place[read])
                if other != own:
                    graph.add_edge(other, own)
    if not nx.is_directed_acyclic_graph(graph):
        return scan
    first = {("part", i): min(place[q.name] for q in part.members) for i, part in enumerate(found)}
    order = nx.lexicographical_topological_sort(graph, key=lambda n: first.get(n, n[1]))
    return tuple(found[i] if kind == "part" else scan[i] for kind, i in order)
