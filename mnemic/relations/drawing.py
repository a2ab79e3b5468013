"""Draw the map: which system is a special case of which, coloured by class."""

import io
from collections.abc import Sequence
from itertools import cycle

import matplotlib
import networkx as nx
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from mnemic.relations.graph import Map
from mnemic.relations.relation import Relation

ROW, COLUMN = 0.55, 3.4
"""Inches between two systems of a column, and between two columns."""
LEGEND = "left: special case, right: what contains it; broad: equal; dashed: limit; dotted: meeting"
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb8855", "#777777")
"""Paul Tol's bright colours, which most colour-blind people tell apart, and a brown."""


def svg(drawn: Map) -> str:
    """Return the map as SVG: special cases left, what contains them right, equals joined by a
    double line, the substitution on each edge; relations that follow from others are left out."""
    places = _places(drawn)
    width = (1 + max(x for x, _ in places.values())) * COLUMN
    height = (3 + max(y for _, y in places.values())) * ROW
    figure = Figure(figsize=(width, height))
    FigureCanvasSVG(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(-0.5, width / COLUMN - 0.5)
    axes.set_ylim(height / ROW - 0.5, -2.5)
    for relation in drawn.direct:
        _edge(axes, places, relation)
    colours = dict(zip(sorted(set(drawn.classes.values())), cycle(COLOURS), strict=False))
    for name, kind in drawn.classes.items():
        axes.text(*places[name], name, ha="center", va="center", fontsize=8, color="white",
                  bbox={"boxstyle": "round,pad=0.3", "color": colours[kind]})  # fmt: skip
    for i, (kind, colour) in enumerate(colours.items()):
        axes.text(i * 0.62 - 0.4, -1.9, kind, fontsize=9, color="white", va="center",
                  bbox={"boxstyle": "round,pad=0.3", "color": colour})  # fmt: skip
    axes.text(-0.4, -1.1, LEGEND,
              fontsize=9, va="center")  # fmt: skip
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "map"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _edge(axes: object, places: dict[str, tuple[float, float]], relation: Relation) -> None:
    start, end = places[relation.inner], places[relation.outer]
    style = {"limit": "--", "approximation": "-.", "meeting": ":"}.get(relation.kind, "-")
    width = 2.4 if relation.both_ways else 0.8
    one_way = not relation.both_ways and relation.kind != "meeting"
    axes.annotate(  # type: ignore[attr-defined]
        "", end, start, zorder=0,
        arrowprops={"arrowstyle": "->" if one_way else "-", "color": "#999999",
                    "linestyle": style, "linewidth": width, "shrinkA": 12, "shrinkB": 26,
                    "connectionstyle": f"arc3,rad={0.25 if start[0] == end[0] else 0.04}"},
    )  # fmt: skip
    if relation.substitution:
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        words = relation.substitution
        axes.text(x, y, words if len(words) < 44 else words[:42] + " …",  # type: ignore[attr-defined]
                  ha="center", va="center", fontsize=5.5, color="#333333", zorder=1,
                  bbox={"boxstyle": "square,pad=0.1", "color": "white", "alpha": 0.7})  # fmt: skip


def _places(drawn: Map) -> dict[str, tuple[float, float]]:
    """Place each step from special to general in a column, connected systems below one another."""
    graph: nx.DiGraph[str] = nx.DiGraph((r.inner, r.outer) for r in drawn.direct)
    graph.add_edges_from((r.outer, r.inner) for r in drawn.direct if r.both_ways)
    places: dict[str, tuple[float, float]] = {}
    top = 0.0
    parts = sorted(nx.weakly_connected_components(graph), key=len, reverse=True)
    for part in parts:
        columns = _columns(drawn, graph.subgraph(part))
        tall = max(map(len, columns))
        for x, column in enumerate(columns):
            gap = tall / len(column)
            for i, name in enumerate(column):
                places[name] = (float(x), top + gap * (i + 0.5) - 0.5)
        top += tall + 0.5
    wide = max((len(_columns(drawn, graph.subgraph(p))) for p in parts), default=4)
    rest = sorted((kind, name) for name, kind in drawn.classes.items() if name not in places)
    for i, (_, name) in enumerate(rest):
        places[name] = (float(i % max(wide, 4)), top + 1 + i // max(wide, 4))
    return places


def _columns(drawn: Map, part: "nx.DiGraph[str]") -> list[Sequence[str]]:
    """Sort a connected part into columns, the most general to the right, with neighbours close."""
    groups = nx.condensation(part)
    depth: dict[int, int] = {}
    for group in nx.topological_sort(groups):
        depth[group] = max((depth[p] + 1 for p in groups.predecessors(group)), default=0)
    level = {name: depth[group] for name, group in groups.graph["mapping"].items()}
    order: dict[str, float] = {}
    columns: list[Sequence[str]] = []
    for x in range(max(level.values()) + 1):
        column = sorted(name for name in part if level[name] == x)
        column.sort(key=lambda n: _middle([order[p] for p in part.predecessors(n) if p in order]))
        order |= {name: i / len(column) for i, name in enumerate(column)}
        columns.append(column)
    return [column for column in columns if column]


def _middle(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.5
