"""The map as SVG: a box for each class, special cases left of what contains them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import networkx as nx

from mnemic.relations import Map, Relation
from mnemic.site.markdown import Ready, render

COLOURS: Final = (
    "#4477aa", "#dd5566", "#228833", "#b59a1f", "#2a9fbf", "#aa3377", "#bb7744", "#777777",
)  # fmt: skip
"""After Paul Tol's bright colours, which most colour-blind people tell apart."""

COLUMNS: Final = 5
WIDTH, HEIGHT, STEP, ROW, TOP, GAP = 172, 26, 198, 38, 40, 22


@dataclass(frozen=True)
class Node:
    """A system's pill: the middle of it, its colour and its page."""

    name: str
    x: float
    y: float
    colour: str
    href: str


@dataclass(frozen=True)
class Box:
    """A class's box, from ``top`` down."""

    kind: str
    top: float
    height: float
    colour: str


@dataclass(frozen=True)
class Edge:
    """A relation as a curve; ``across`` joins two boxes."""

    path: str
    kind: str
    words: str
    across: bool


def picture(drawn: Map, href: Callable[[str], str]) -> Ready:
    """Return the map as SVG; ``href`` tells each system's page, relative to that of the map."""
    boxes, nodes, top = [], dict[str, Node](), 4.0
    kinds = sorted(set(drawn.classes.values()), key=lambda k: _size(drawn, k), reverse=True)
    for kind, colour in zip(kinds, cycle(COLOURS), strict=False):
        places = dict(_places(drawn, kind))
        height = TOP + ROW * (1 + max(y for _, y in places.values()))
        boxes.append(Box(kind, top, height, colour))
        nodes |= {
            name: Node(name, 16 + WIDTH / 2 + x * STEP, top + TOP + HEIGHT / 2 + y * ROW, colour,
                       href(name))
            for name, (x, y) in places.items()
        }  # fmt: skip
        top += height + GAP
    edges = [_edge(r, nodes[r.inner], nodes[r.outer], drawn) for r in drawn.direct]
    edges.sort(key=lambda edge: not edge.across)  # what lies within a box is drawn over the rest
    width = STEP * COLUMNS + 40  # room for bows
    return render(
        "map.svg", boxes=boxes, nodes=nodes.values(), edges=edges, width=width, height=top,
        pill=(WIDTH, HEIGHT),
    )  # fmt: skip


def _size(drawn: Map, kind: str) -> int:
    return sum(each == kind for each in drawn.classes.values())


def _places(drawn: Map, kind: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the column and the row of each system of a class; those without a relative below."""
    graph = _within(drawn, kind)
    row = 0
    parts = sorted(nx.weakly_connected_components(graph), key=lambda p: (-len(p), min(p)))
    single = [next(iter(part)) for part in parts if len(part) == 1]
    for part in parts:
        if len(part) > 1:
            columns = _columns(graph.subgraph(part))
            for x, column in enumerate(columns):
                for y, name in enumerate(column):
                    yield name, (x, row + y)
            row += max(map(len, columns))
    for i, name in enumerate(sorted(single)):
        yield name, (i % COLUMNS, row + i // COLUMNS)


def _within(drawn: Map, kind: str) -> "nx.DiGraph[str]":
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(name for name, each in drawn.classes.items() if each == kind)
    for relation in drawn.direct:
        if relation.inner in graph and relation.outer in graph and relation.kind != "meeting":
            graph.add_edge(relation.inner, relation.outer)
            if relation.both_ways:
                graph.add_edge(relation.outer, relation.inner)
    return graph


def _columns(part: "nx.DiGraph[str]") -> list[list[str]]:
    """Return the systems of a connected part by column, those that contain most to the right."""
    groups = nx.condensation(part)
    depth: dict[int, int] = {}
    for group in nx.topological_sort(groups):
        depth[group] = max((depth[p] + 1 for p in groups.predecessors(group)), default=0)
    level = {name: depth[group] for name, group in groups.graph["mapping"].items()}
    columns: list[list[str]] = [[] for _ in range(min(COLUMNS, 1 + max(level.values())))]
    for name in _neighbourly(part):
        columns[min(level[name], COLUMNS - 1)].append(name)
    return columns


def _neighbourly(part: "nx.DiGraph[str]") -> list[str]:
    """Order the systems so that relatives are near each other, the same at every run."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(sorted(part))
    graph.add_edges_from(sorted(part.edges))
    return list(nx.dfs_preorder_nodes(graph, max(graph, key=graph.degree)))


def _edge(relation: Relation, a: Node, b: Node, drawn: Map) -> Edge:
    kinds: Mapping[str, str] = drawn.classes
    if abs(a.x - b.x) < WIDTH:  # one above the other: a bow at the right
        bow = 30 + abs(a.y - b.y) / 8
        x, y = a.x + WIDTH / 2, b.x + WIDTH / 2
        path = (
            f"M{x:.0f} {a.y:.0f}C{x + bow:.0f} {a.y:.0f} {y + bow:.0f} {b.y:.0f} {y:.0f} {b.y:.0f}"
        )
    else:
        side = WIDTH / 2 if a.x < b.x else -WIDTH / 2
        x, y = a.x + side, b.x - side
        middle = (x + y) / 2
        path = f"M{x:.0f} {a.y:.0f}C{middle:.0f} {a.y:.0f} {middle:.0f} {b.y:.0f} {y:.0f} {b.y:.0f}"
    across = kinds[relation.inner] != kinds[relation.outer]
    return Edge(path, relation.kind.replace(" ", "-"), str(relation), across)
