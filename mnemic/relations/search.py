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

import sympy as sp

from mnemic.compiler.compare.canonical import canonical
from mnemic.compiler.compare.changes import change_of
from mnemic.compiler.compare.feasible import feasible
from mnemic.compiler.compare.form import Form
from mnemic.compiler.compare.matching import Match, match
from mnemic.compiler.compare.solving import Clock
from mnemic.compiler.compare.special import Special, singles
from mnemic.compiler.rule import Rule
from mnemic.relations.relation import Kind, Relation

SECONDS = 8.0
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
    """A relation, and what is needed to run it: the special values and the match."""

    relation: Relation
    at: Special
    match: Match


def related(
    rules: Mapping[str, Rule], told: Callable[[str], None] = lambda name: None,
    only: str | None = None,
) -> list[Found]:  # fmt: skip
    """Find the relations among ``rules``, or those of the rule called ``only``.

    ``told`` hears each name before its relations are looked for. A relation holds for all values
    of the inner rule's coefficients. Both directions of an equality are one relation.
    """
    shapes: dict[Any, list[Placed]] = defaultdict(list)
    plain = {}
    for name, rule in rules.items():
        plain[name] = Placed(name, PLAIN, canonical(rule))
        for placed in (plain[name], *_special(name, rule, plain[name].form)):
            shapes[placed.form.skeleton()].append(placed)
    found: dict[tuple[str, str], Found] = {}
    for name, inner in plain.items():
        told(name)
        for outer in shapes[inner.form.skeleton()]:
            if outer.name == name or (name, outer.name) in found:
                continue
            if only is not None and only not in (name, outer.name):
                continue
            one = _relation(inner, outer)
            if one is not None:
                found[name, outer.name] = one
    return list(_merged(found))


def _special(name: str, rule: Rule, plain: Form) -> Iterator[Placed]:
    """The rule at each special value that changes the shape of its form, or lies at infinity."""
    for special in singles(rule):
        form = special.form(rule)
        if form is None:
            continue
        bent = special.edits or _endless(special) or form.skeleton() != plain.skeleton()
        if bent:
            yield Placed(name, special, form)


def _endless(special: Special) -> bool:
    return any(value == sp.oo for _, value in special.values)


def _relation(inner: Placed, outer: Placed) -> Found | None:
    scaled = not any(w.function == "error" for w in inner.form.wholes)
    if not feasible(inner.form, outer.form, scaled=scaled):
        return None
    found = match(inner.form, outer.form, Clock.starting(SECONDS))
    if found is None:
        return None
    kind: Kind = "special case"
    if _endless(outer.at):
        kind = "limit"
    elif "anchor" in outer.at.edits:
        kind = "approximation"
    change = change_of(found)
    relation = Relation(inner.name, outer.name, kind, (*outer.at.words, *change.special),
                        change.general, how=found.how)  # fmt: skip
    return Found(relation, outer.at, found)


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
        relation = Relation(inner, outer, kind, (), (*there.at, *there.change),
                            (*back.at, *back.change), there.how)  # fmt: skip
        yield Found(relation, one.at, one.match)


def _free(found: Found) -> bool:
    """Whether nothing of the outer rule is given up."""
    return found.at == PLAIN
