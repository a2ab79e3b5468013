"""The map: systems as nodes, and as edges the relations that do not follow from others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import networkx as nx

from mnemic.compiler.rule import Rule
from mnemic.relations.confirm import Unconfirmed, confirm
from mnemic.relations.notes import notes
from mnemic.relations.relation import Relation
from mnemic.relations.search import related


@dataclass(frozen=True)
class Map:
    """Systems with their classes, and their confirmed relations.

    ``unconfirmed`` lists relations that algebra found but numbers did not confirm, each with the
    reason: these are no edges.
    """

    classes: Mapping[str, str]
    relations: tuple[Relation, ...]
    unconfirmed: tuple[str, ...] = ()

    @cached_property
    def graph(self) -> "nx.DiGraph[str]":
        """Every containment as an edge from the inner system to the outer, equalities both ways.

        A node has its ``class``, an edge its ``relation``. Meetings are no containment.
        """
        graph: nx.DiGraph[str] = nx.DiGraph()
        for name, kind in self.classes.items():
            graph.add_node(name, **{"class": kind})
        for relation in self.relations:
            if relation.kind == "meeting":
                continue
            graph.add_edge(relation.inner, relation.outer, relation=relation)
            if relation.both_ways:
                graph.add_edge(relation.outer, relation.inner, relation=relation)
        return graph

    @cached_property
    def direct(self) -> tuple[Relation, ...]:
        """The relations that are not compositions of others, the simplest of equivalent ones, and
        all meetings.

        Within a group of equal systems these are as many as connect the group. Between two groups
        it is one relation, and only if no third group lies between them.
        """
        groups = nx.condensation(self.graph)
        member = groups.graph["mapping"]
        reduced = nx.transitive_reduction(groups)
        chosen: list[Relation] = []
        joined: nx.Graph[str] = nx.Graph()
        crossed = set()
        for relation in sorted(self.relations, key=_plainness):
            a, b = member[relation.inner], member[relation.outer]
            if relation.kind == "meeting":
                chosen.append(relation)
                continue
            if a == b:
                joined.add_nodes_from((relation.inner, relation.outer))
                if nx.has_path(joined, relation.inner, relation.outer):
                    continue
                joined.add_edge(relation.inner, relation.outer)
            elif not reduced.has_edge(a, b) or (a, b) in crossed:
                continue
            crossed.add((a, b))
            chosen.append(relation)
        return tuple(chosen)

    @property
    def alone(self) -> tuple[str, ...]:
        """Systems without any relation."""
        related = {name for r in self.relations for name in (r.inner, r.outer)}
        return tuple(name for name in self.classes if name not in related)

    def near(self, name: str) -> tuple[Relation, ...]:
        """Return the relations of one system, the plainest first."""
        mine = [r for r in self.relations if name in (r.inner, r.outer)]
        return tuple(sorted(mine, key=_plainness))

    def path(self, a: str, b: str) -> tuple[Relation, ...] | None:
        """Find the shortest chain of relations between two systems in any direction, or None.

        Of chains of one length the one with the fewest limits.
        """
        joined: nx.Graph[str] = nx.Graph()
        joined.add_nodes_from(self.classes)
        for relation in sorted(self.relations, key=_plainness, reverse=True):
            weight = 1.01 if relation.kind == "limit" else 1.0
            joined.add_edge(relation.inner, relation.outer, relation=relation, weight=weight)
        try:
            names = nx.shortest_path(joined, a, b, weight="weight")
        except nx.NetworkXNoPath:
            return None
        return tuple(joined.edges[pair]["relation"] for pair in pairwise(names))

    def to_json(self) -> dict[str, Any]:
        """Return the map as plain data."""
        direct = {(r.inner, r.outer) for r in self.direct}
        return {
            "systems": [{"name": name, "class": kind} for name, kind in self.classes.items()],
            "relations": [
                {**r.to_json(), "direct": (r.inner, r.outer) in direct} for r in self.relations
            ],
            "unconfirmed": list(self.unconfirmed),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Map":
        """Return the map of the data that ``to_json`` returned."""
        relations = [Relation.from_json(row) for row in data["relations"]]
        classes = {row["name"]: row["class"] for row in data["systems"]}
        return cls(classes, tuple(relations), tuple(data["unconfirmed"]))


def _plainness(relation: Relation) -> tuple[Any, ...]:
    """Return the key by which relations are sorted, the plainest first."""
    return not relation.both_ways, len(relation.substitution), relation.inner, relation.outer


def build(
    rules: Mapping[str, Rule], told: Callable[[str], None] = lambda name: None,
    only: str | None = None,
) -> Map:  # fmt: skip
    """Find the relations among rules, run each in numbers, and make the map of those that hold.

    ``told`` is called with each name before its relations are searched; ``only`` limits the search
    to the relations of one rule.
    """
    kept, unconfirmed = [], []
    for found in related(rules, told, only):
        try:
            confirmed = confirm(found, rules)
        except Unconfirmed as reason:
            unconfirmed.append(f"{found.relation}: {reason}")
            continue
        kept.append(notes(confirmed, found, rules))
    classes = {name: rule.structure.kind for name, rule in rules.items()}
    return Map(classes, tuple(kept), tuple(unconfirmed))
