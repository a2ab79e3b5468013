"""What two equal rules differ in beyond the rule: the block around them, a coefficient's range."""

import math
from collections.abc import Mapping
from dataclasses import replace

from mnemic.compiler.compare.differing_entries import axes
from mnemic.compiler.ranges import ranges_of, span
from mnemic.compiler.rule import Rule
from mnemic.relations.relation import Relation
from mnemic.relations.search import Found


def notes(relation: Relation, found: Found, rules: Mapping[str, Rule]) -> Relation:
    """Return an equality with what its two systems differ in beside their rules."""
    if not relation.both_ways:
        return relation
    a, b = rules[relation.inner], rules[relation.outer]
    told = [
        f"another block: {row.name.removeprefix('block.')} {row.a} and {row.b}"
        for row in axes(a.problem.spec, b.problem.spec)
        if row.name.startswith("block")
    ]
    mine, theirs = ranges_of(a.scalars), ranges_of(b.scalars)
    for symbol, value in found.match.change:
        if value in mine and symbol in theirs and _span(mine[value]) != _span(theirs[symbol]):
            told.append(
                f"{relation.inner} has {value} in {_span(mine[value])}, "
                f"{relation.outer} {symbol} in {_span(theirs[symbol])}"
            )
    return replace(relation, notes=tuple(told))


def _span(values: list[float]) -> str:
    """Write the interval that an activation's values span."""
    ends = ["∞" if math.isinf(x) else f"{x:g}" for x in span(values)]
    return f"({ends[0]}, {ends[1]})"
