"""Notes on what a relation does not show: different blocks, coefficients out of their range."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mnemic.compiler.compare.changes import leaves
from mnemic.compiler.compare.differing_entries import axes
from mnemic.compiler.compare.entry_form import family
from mnemic.compiler.compare.matching import Match
from mnemic.compiler.ranges import spans_of
from mnemic.compiler.rule import Rule
from mnemic.relations.relation import Relation
from mnemic.relations.search import Found

LEAVES = "for some values the change leaves the range of a coefficient"


def notes(relation: Relation, found: Found, rules: Mapping[str, Rule]) -> Relation:
    """Add notes to a relation: where it leads out of a coefficient's range and, for an equality,
    in what else the two systems differ."""
    a, b = rules[relation.inner], rules[relation.outer]
    told = _blocks(a, b) if relation.both_ways else []
    mine, theirs = spans_of(a.scalars), spans_of(b.scalars)
    for value, symbol in _renamed(found):
        if value in mine and symbol in theirs and _matters(relation, mine[value], theirs[symbol]):
            told.append(
                f"{relation.inner} has {value} in {_span(mine[value])}, "
                f"{relation.outer} {symbol} in {_span(theirs[symbol])}"
            )
    back = found.back is not None and leaves(_changed(found, found.back), theirs, mine)
    if back or leaves(_changed(found, found.match), mine, theirs):
        told.append(LEAVES)
    return replace(relation, notes=tuple(told))


def _blocks(a: Rule, b: Rule) -> list[str]:
    """Return what the blocks of two systems differ in, as one note; none where they are alike."""
    rows = [row for row in axes(a.problem.spec, b.problem.spec) if row.name.startswith("block")]
    told = ", ".join(f"{row.name.removeprefix('block.')} {row.a} and {row.b}" for row in rows)
    return [f"another block: {told}"] if rows else []


def _renamed(found: Found) -> list[tuple[str, str]]:
    """Return by name the coefficients that are one of the other rule's, each with that one."""
    pairs = [(s, v) for s, v in found.match.change if not _vanishes(found, s)]
    return [*dict.fromkeys((family(v), family(s)) for s, v in pairs if v.is_Symbol)]


def _changed(found: Found, match: Match) -> Match:
    """Return a match with only those coefficients that are not merely renamed."""
    change = tuple((s, v) for s, v in match.change if not (v.is_Symbol or _vanishes(found, s)))
    return replace(match, change=change)


def _vanishes(found: Found, symbol: Any) -> bool:
    """Return whether a coefficient goes to zero, so that its range is no matter."""
    named = {str(s) for s in (*found.at.faint, found.at.scaled)}
    return found.at.first or family(symbol) in named


def _matters(relation: Relation, mine: tuple[float, float], theirs: tuple[float, float]) -> bool:
    if relation.both_ways:
        return mine != theirs
    return mine[0] < theirs[0] or mine[1] > theirs[1]


def _span(ends: tuple[float, float]) -> str:
    """Write the interval that an activation's values span."""
    low, high = (f"{'−' * (x < 0)}∞" if math.isinf(x) else f"{x:g}" for x in ends)
    return f"({low}, {high})"
