"""Relations among many rules, by their canonical forms.

Comparing every pair at every special value would take hours. What makes it minutes: a rule is
written out once, at its own coefficients and at each special value; only forms of one shape are
compared; a quick numerical test goes before the algebra; and a special value that leaves the shape
as it is needs no look of its own, since the algebra solves for constants too.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
import sympy as sp

from mnemic.compiler.compare.canonical import canonical
from mnemic.compiler.compare.changes import change_of
from mnemic.compiler.compare.entry_form import Form
from mnemic.compiler.compare.feasible import feasible
from mnemic.compiler.compare.matching import Match, freed, match
from mnemic.compiler.compare.solving import Clock
from mnemic.compiler.compare.special import Special, of_numbers, singles, small_steps
from mnemic.compiler.rule import Rule
from mnemic.relations.relation import Kind, Relation

SECONDS = 4.0
"""How long the algebra of one pair may take."""
PLAIN = Special(())


@dataclass(frozen=True)
class Placed:
    """A rule at special values, written out."""

    name: str
    at: Special
    form: Form


@dataclass(frozen=True)
class Found:
    """A relation, and what is needed to run it: the special values of both, and the match."""

    relation: Relation
    at: Special
    match: Match
    where: Special = PLAIN


def related(
    rules: Mapping[str, Rule], told: Callable[[str], None] = lambda name: None,
    only: str | None = None,
) -> list[Found]:  # fmt: skip
    """Find the relations among ``rules``, or those of the rule called ``only``.

    ``told`` hears each name before its relations are looked for. A relation holds for all values
    of the inner rule's coefficients; both directions of an equality are one relation. Meetings are
    looked for between systems that share no special case among the others.
    """
    shapes: dict[Any, list[Placed]] = defaultdict(list)
    plain = {}
    for name, rule in rules.items():
        plain[name] = Placed(name, PLAIN, canonical(rule))
        for placed in (plain[name], *_special(name, rule, plain[name].form)):
            shapes[placed.form.skeleton()].append(placed)
    wanted = [n for n in rules if only in (None, n)]
    found: dict[tuple[str, str], Found] = {}
    for name, inner in plain.items():
        told(name)
        for outer in shapes[inner.form.skeleton()]:
            pair = name, outer.name
            if outer.name != name and pair not in found and not {*pair}.isdisjoint(wanted):
                _keep(found, pair, _relation(inner, outer))
    met = _meetings(found, shapes, plain, wanted)
    return [*_merged(found), *met]


def _dead(form: Form) -> bool:
    """Whether a memory that starts at zero stays there: at such values all rules are alike."""
    nothing = {s: 0 for state in form.states for s in state.symbols}
    after = [e for state in form.states for e in (*state.after, state.start)]
    return all(sp.expand(e.subs(nothing)) == 0 for e in after)


def _keep(found: dict[tuple[str, str], Found], pair: tuple[str, str], one: Found | None) -> None:
    if one is not None:
        found[pair] = one


def _meetings(
    found: Mapping[tuple[str, str], Found], shapes: Mapping[Any, list[Placed]],
    plain: Mapping[str, Placed], wanted: list[str],
) -> Iterator[Found]:  # fmt: skip
    """Systems of which neither contains the other, nor both a third, and that have points in
    common."""
    inside: nx.DiGraph[str] = nx.DiGraph(list(found))
    inside.add_nodes_from(plain)
    parts = {name: nx.ancestors(inside, name) | {name} for name in plain}
    for form in shapes.values():
        for one in form:
            if one.at == PLAIN or one.at.endless or one.name not in wanted or _dead(one.form):
                continue
            for other in (p for p in form if p.at == PLAIN):
                if parts[one.name].isdisjoint(parts[other.name]):
                    met = _relation(one, other)
                    if met is not None:
                        parts[one.name] |= {met.relation.outer}
                        parts[other.name] |= {met.relation.outer}
                        yield met


def _special(name: str, rule: Rule, plain: Form) -> Iterator[Placed]:
    """The rule at each special value that changes the shape of its form, or lies at infinity."""
    seen = {plain}
    for special in (*singles(rule), *of_numbers(rule), *small_steps(rule)):
        form = special.form(rule)
        if form is None or form in seen:
            continue
        bent = special.edits or special.endless or form.skeleton() != plain.skeleton()
        if bent:
            seen.add(form)
            yield Placed(name, special, form)


def _relation(inner: Placed, outer: Placed) -> Found | None:
    scaled = not any(w.function == "error" for w in inner.form.wholes)
    other = freed(outer.form, inner.form)
    if not feasible(inner.form, other, scaled=scaled):
        return None
    found = match(inner.form, other, Clock.starting(SECONDS))
    if found is None:
        return None
    kind: Kind = "special case"
    if outer.at.endless:
        kind = "limit"
    elif "anchor" in outer.at.edits:
        kind = "approximation"
    kind = "meeting" if inner.at != PLAIN else kind
    change = change_of(found)
    relation = Relation(inner.name, outer.name, kind, (*outer.at.words, *change.special),
                        inner.at.words, change.general, how=found.how)  # fmt: skip
    return Found(relation, outer.at, found, inner.at)


def _merged(found: Mapping[tuple[str, str], Found]) -> Iterator[Found]:
    """Relations that hold both ways without special values told once, as equality."""
    for (inner, outer), one in found.items():
        other = found.get((outer, inner))
        if other is None or not (_free(one) and _free(other)):
            yield one
            continue
        if inner > outer:
            continue
        there, back = one.relation, other.relation
        same = one.match.trivial or one.match.renaming
        kind: Kind = "equal" if same else "equal under a change"
        relation = Relation(inner, outer, kind, change=(*there.at, *there.change),
                            back=(*back.at, *back.change), how=there.how)  # fmt: skip
        yield Found(relation, one.at, one.match)


def _free(found: Found) -> bool:
    """Whether nothing of the outer rule is given up."""
    return found.at == PLAIN
