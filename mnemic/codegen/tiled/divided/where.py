"""Which quantities one kernel stores for the next: a minimum cut of the graph between them.

A quantity that an earlier kernel could compute is either stored there and loaded where it is read,
or recomputed where it is read. The cheapest of all choices is taken, by the costs of ``costs``; so
results of products and solves are stored, and what is cheap, or larger than its inputs, is
recomputed.
"""

from collections.abc import Collection
from math import inf

import networkx as nx

from mnemic.codegen.plan import Given
from mnemic.codegen.tiled.divided import costs
from mnemic.codegen.tiled.layout import Layout

EARLIER, LATER, STORED = "", " later", " stored"
"""Nodes beside quantities: no quantity has such a name."""


def handed_on(
    lay: Layout, earlier: Collection[str], later: Collection[str], *, barred: Collection[str] = ()
) -> tuple[str, ...]:  # fmt: skip
    """Return the quantities of ``earlier`` that are stored for ``later``, by name and in order.

    Arguments and memories that are given can be loaded in either kernel; what is ``barred`` is not
    stored.
    """
    plan = lay.plan
    network = nx.DiGraph()
    network.add_nodes_from((EARLIER, LATER))
    reading = {*earlier, *later}
    for name in _read(lay, reading):
        quantity = plan[name]
        given = isinstance(quantity.op, Given)
        if not given and name not in earlier:
            continue
        network.add_edge(EARLIER, name, capacity=costs.cycles_to_compute(lay, quantity))
        readers = [n for n in plan.graph.successors(name) if n in reading]
        told = [plan[n] for n in readers]
        anew = given or name in barred
        cost = inf if anew else costs.handed(lay, name, rounded=costs.rounds(lay, name, told))
        network.add_edge(name, name + STORED, capacity=cost)
        for reader in readers:
            network.add_edge(name + STORED, LATER if reader in later else reader, capacity=inf)
    _, (early, _) = nx.minimum_cut(network, EARLIER, LATER)
    stored = {name for name in network.succ if name + STORED in network} & early
    return tuple(
        q.name for q in plan.ordered() if q.name in stored and q.name + STORED not in early
    )


def _read(lay: Layout, reading: Collection[str]) -> list[str]:
    """List these quantities and what they read, in order."""
    found = set(reading).union(*(lay.plan[name].reads() for name in reading))
    return [q.name for q in lay.plan.ordered() if q.name in found]
