"""Relations among many rules, by their canonical forms.

Comparing every pair at every special value would take hours. It takes a minute because: for each
rule only those edits are tried that can lead to another rule of the map, part by part of the specs;
a form is written out once, at its own coefficients and at each special value that changes its
shape; only forms of the same shape are compared; a quick numerical test precedes the algebra; and a
relation that follows from two others is composed of these instead of being solved for.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import networkx as nx
import sympy as sp
from pydantic import ValidationError

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.canonical import canonical, compare_features
from mnemic.compiler.compare.changes import change_of
from mnemic.compiler.compare.entry_form import Form, family, pruned
from mnemic.compiler.compare.feasible import feasible
from mnemic.compiler.compare.matching import STRETCH, Match, checked, freed, is_key, match
from mnemic.compiler.compare.removals import edits_towards, words_of_edits
from mnemic.compiler.compare.solving import Clock, simplified
from mnemic.compiler.compare.special import (
    Special,
    broken,
    edited,
    of_coefficients,
    of_keys,
    small_steps,
    unbounded,
)
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.rule import Layers, Levels, Moments, Rule
from mnemic.errors import MnemicError
from mnemic.relations.first_order import first_order
from mnemic.relations.relation import Kind, Relation
from mnemic.relations.views import by_pairs, of_pairs, on_features, saturated, stretched, viewed

SECONDS = 4.0
"""How long the algebra of one pair may take."""
PLAIN = Special(())


@dataclass(frozen=True)
class Placed:
    """A rule at special values, written out."""

    name: str
    at: Special
    form: Form
    on_features: bool = False


@dataclass(frozen=True)
class Found:
    """A relation with the data to run it: the special values of both rules, the match and, for an
    equality, ``back``, the match in the other direction."""

    relation: Relation
    at: Special
    match: Match
    where: Special = PLAIN
    on_features: bool = False
    back: Match | None = None


def related(
    rules: Mapping[str, Rule], told: Callable[[str], None] = lambda name: None,
    only: str | None = None,
) -> list[Found]:  # fmt: skip
    """Find the relations among ``rules``, or those of the rule called ``only``.

    ``told`` hears each name before its relations are looked for. A relation holds for all values
    of the inner rule's coefficients; both directions of an equality are one relation. Meetings are
    looked for between systems that share no special case among the others.
    """
    wanted = [n for n in rules if only in (None, n)]
    forms = {name: canonical(rule) for name, rule in rules.items()}
    plain = [
        Placed(name, PLAIN, form) for name, r in rules.items() for form in _views(forms[name], r)
    ]
    featured = [Placed(name, PLAIN, form, on_features=True) for name, r in rules.items()
                if (form := on_features(forms[name], r)) is not None]  # fmt: skip
    shapes: dict[Any, list[Placed]] = defaultdict(list)
    for placed in (*plain, *featured):
        shapes[placed.form.skeleton()].append(placed)
    looked = _Search()
    for outer in plain:
        told(outer.name)
        for inner in (p for p in shapes[outer.form.skeleton()] if p.name != outer.name):
            if not {outer.name, inner.name}.isdisjoint(wanted):
                looked.relate(inner, outer)
    twins = _twins(rules)
    for name, rule in rules.items():
        told(name)
        if name in twins:
            continue
        others = [rules[n] for n in (rules if name in wanted else wanted) if n != name]
        for placed in _special(name, rule, forms[name], others):
            shape = shapes[placed.form.skeleton()]
            shape.append(placed)
            if placed.at.unit:  # of keys of one length nothing follows for all keys
                continue
            plainly = (p for p in shape if p.at == PLAIN and p.name != name)
            for inner in sorted(plainly, key=looked.depth):  # the widest first: others follow
                if not {name, inner.name}.isdisjoint(wanted):
                    looked.relate(inner, placed)
    for name, first in twins.items():
        looked.copy(first, name)
    for placed in _to_first_order(rules):
        shapes[placed.form.skeleton()].append(placed)
    met = _meetings(looked.found, shapes, rules, wanted)
    return [*_merged(looked.found), *met]


class _Search:
    """The relations found so far, and the pairs that were compared in vain."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], Found] = {}
        self.placed: dict[tuple[str, str], Placed] = {}
        self.vain: set[tuple[str, Placed]] = set()
        self.plainly: dict[str, list[str]] = defaultdict(list)

    def relate(self, inner: Placed, outer: Placed) -> None:
        """Look whether one plain rule lies in another at special values, and keep what is found."""
        pair = inner.name, outer.name
        if pair in self.found or compare_features(inner.form, outer.form) != "same":
            return
        if self._in_vain(inner, outer):
            return
        one = self._composed(inner, outer) or _relation(inner, outer)
        if one is None:
            if not inner.on_features:
                self.vain.add((inner.name, outer))
        else:
            self.found[pair], self.placed[pair] = one, outer
            if one.at == PLAIN:
                self.plainly[inner.name].append(outer.name)

    def _in_vain(self, inner: Placed, outer: Placed) -> bool:
        """Return whether a rule equal to the inner one was already compared in vain."""
        return not inner.on_features and any(
            (name, outer) in self.vain
            for name in self._plainly(inner.name)
            if inner.name in self._plainly(name)
        )

    def depth(self, placed: Placed) -> int:
        """Return how many rules contain one without special values."""
        return len(self._plainly(placed.name))

    def _plainly(self, name: str) -> list[str]:
        """Return the rules that contain one without special values."""
        return self.plainly[name]

    def _composed(self, inner: Placed, outer: Placed) -> Found | None:
        """Compose the relation from two, the first of which is without special values."""
        for name in () if inner.on_features else self._plainly(inner.name):
            second = self.found.get((name, outer.name))
            if second is None or self.placed[name, outer.name] is not outer:
                continue
            both = composed(self.found[inner.name, name].match, second.match)
            if both is not None and (sure := checked(inner.form, outer.form, both)) is not None:
                return _in_words(inner, outer, sure)
        return None

    def copy(self, first: str, twin: str) -> None:
        """Copy to a twin the relations of the first system that has the same rule."""
        for (inner, outer), one in [*self.found.items()]:
            if outer == first and one.at != PLAIN and inner != twin:
                relation = replace(one.relation, outer=twin)
                self.found.setdefault((inner, twin), replace(one, relation=relation))


def _twins(rules: Mapping[str, Rule]) -> dict[str, str]:
    """Return the rules that differ from an earlier one only in the block, each with that one."""
    first: dict[str, str] = {}
    found = {}
    for name, rule in rules.items():
        spec = rule.problem.spec
        told = {"name", "title", "source", "block", "notes", "published"}
        axes = spec.model_dump_json(exclude=told)
        if first.setdefault(axes, name) != name:
            found[name] = first[axes]
    return found


def composed(first: Match, second: Match) -> Match | None:
    """Compose two changes of coefficients, one after the other."""
    table = dict(first.change)
    keys = any(is_key(symbol) for symbol in table)
    if STRETCH in table or STRETCH in dict(second.change):
        return None
    if keys and any(sp.sympify(x).has(sym.kappa) for _, x in second.change):
        return None

    def through(value: Any) -> Any:
        return simplified(sp.sympify(value).subs(table, simultaneous=True))

    change = tuple((symbol, through(value)) for symbol, value in second.change)
    more = tuple((s, x) for s, x in first.change if is_key(s) and s not in dict(change))
    how = first.how if second.how == "algebra" else second.how
    return Match((*change, *more), simplified(through(second.scale) * first.scale), how)


def _dead(form: Form) -> bool:
    """Return whether a memory that starts at zero stays there, as such rules are all the same."""
    if not form.states:
        return False
    nothing = {s: 0 for state in form.states for s in state.symbols}
    after = [e for state in form.states for e in (*state.after, state.start)]
    return all(sp.expand(e.subs(nothing)) == 0 for e in after)


def _meetings(
    found: Mapping[tuple[str, str], Found], shapes: Mapping[Any, list[Placed]],
    names: Iterable[str], wanted: list[str],
) -> Iterator[Found]:  # fmt: skip
    """Yield meetings: pairs of systems with points in common, of which neither contains the other
    and which do not both contain a third."""
    inside: nx.DiGraph[str] = nx.DiGraph(list(found))
    inside.add_nodes_from(names)
    parts = {name: nx.ancestors(inside, name) | {name} for name in inside}
    for form in shapes.values():
        for one in form:
            if one.at == PLAIN or one.at.endless or one.name not in wanted or _dead(one.form):
                continue
            for other in form:
                first = other.at.first and not other.at.endless
                if not (first or other.at == PLAIN) or other.on_features:
                    continue
                if parts[one.name].isdisjoint(parts[other.name]):
                    met = _relation(one, other)
                    if met is not None:
                        parts[one.name] = parts[other.name] = parts[one.name] | parts[other.name]
                        yield met


def _to_first_order(rules: Mapping[str, Rule]) -> Iterator[Placed]:
    """Yield rules on a simplex to first order in the rate, at the first values that allow it."""
    told = Special(("η → 0, to first order",), first=True)
    for name, rule in rules.items():
        for special in (PLAIN, *of_coefficients(rule)):
            form = None if special.endless else first_order(rule, special)
            if form is not None:
                yield Placed(name, special + told, form)
                break


def _views(form: Form, rule: Rule, at: Special = PLAIN) -> Iterator[Form]:
    """Yield the ways in which a form is compared: by its transition, and as a sum over pairs."""
    yield viewed(form, rule, at)
    pairs = by_pairs(form, rule)
    if pairs is not None:
        yield pairs


def _special(name: str, rule: Rule, plain: Form, others: list[Rule]) -> Iterator[Placed]:
    """Yield the rule at each special value that changes its form's shape, or is at infinity."""
    seen = {*_views(plain, rule)}
    for base, changed, form in _variants(rule, plain, others):
        found = [(base, form, changed)]
        for special in (*of_keys(changed), *of_coefficients(changed), *small_steps(changed)):
            bent = _bent(changed, form, special)
            if bent is not None:
                found.append((base + special, bent, changed))
        for at, bent, of in found:
            placed = [(at, view) for view in _views(bent, of, at)]
            placed += [(at + special, view) for special, view in of_pairs(bent, of)]
            placed += [(at + special, viewed(view, of)) for special, view in saturated(bent, of)]
            for there, view in placed:
                if view not in seen:
                    seen.add(view)
                    yield Placed(name, there, view)


def _variants(rule: Rule, plain: Form, others: list[Rule]) -> Iterator[tuple[Special, Rule, Form]]:
    """Yield the rule as it is, and after each edit that may lead to one of the others."""
    yield PLAIN, rule, plain
    spec = rule.problem.spec
    edits = dict.fromkeys(e for other in others for e in edits_towards(rule, other) if e)
    for one in sorted((*edits, *unbounded(rule)), key=len):
        try:
            changed = derive_spec(edited(spec, one))
        except (MnemicError, ValidationError):
            continue
        if changed.applied.outside and "plain" in one and not isinstance(changed, Layers):
            continue  # no rule of one matrix has a rate outside of its momentum
        form = canonical(changed)
        if not broken(form):
            yield Special(words_of_edits(one), edits=one), changed, form


def _bent(rule: Rule, form: Form, special: Special) -> Form | None:
    """Return the form at special values if these change its shape, else None."""
    if special.coefficients and not _may_bend(rule, form, special):
        return None
    found = special.form(rule)
    if found is None and _unseen(rule, special):  # what is divided by it may cancel
        found = pruned(form.mapped(lambda e: e.subs(dict(special.values))))
    if found is None or broken(found):
        return None
    bent = special.endless or found.skeleton() != form.skeleton()
    bent |= found.features != form.features
    return found if bent or isinstance(rule, Moments) or _unseen(rule, special) else None


def _unseen(rule: Rule, special: Special) -> bool:
    """Return whether predictions can be ignored, so that a rule of kept keys sums over pairs."""
    return rule.problem.kernels is not None and any(value == 0 for _, value in special.values)


def _may_bend(rule: Rule, form: Form, special: Special) -> bool:
    """Return whether a value of a coefficient can change the form beyond what algebra would find.

    It can where the coefficient stands in a function or a fact, where a state may drop out, or (at
    infinity) where something is divided by it.
    """
    ((symbol, value),) = special.values
    every = [*form.entries(), *(e for _, e in form.functions)]
    named = [e for e in every if any(family(s) == str(symbol) for s in e.free_symbols)]
    if value == sp.oo:
        return bool(named) and not any(_polynomial(e) for e in named)
    seen = viewed(form, rule)
    told = any(re.search(rf"\b{symbol}\b", tag) for tag in seen.tags)
    told |= any(symbol in e.free_symbols for _, e in seen.features)
    inside = any(symbol in e.free_symbols for _, e in form.functions)
    if _unseen(rule, special):
        return True
    if isinstance(rule, Layers):
        return told or inside or (rule.applied.outside and rule.momentum is not None)
    if isinstance(rule, Levels | Moments) or told or inside:
        return True
    plain = len(form.states) == 1 and not form.wholes and all(map(_polynomial, named))
    return bool(named) and not plain


@cache
def _polynomial(entry: Any) -> bool:
    return bool(entry.is_polynomial())


def _relation(inner: Placed, outer: Placed) -> Found | None:
    if compare_features(inner.form, outer.form) != "same":
        return None
    scaled = not any(w.function == "error" for w in inner.form.wholes)
    other = stretched(freed(outer.form, inner.form))
    if not feasible(inner.form, other, scaled=scaled):
        return None
    found = match(inner.form, other, Clock.starting(SECONDS))
    return None if found is None else _in_words(inner, outer, found)


def _in_words(inner: Placed, outer: Placed, found: Match) -> Found:
    """Write the relation in words, with what is needed to run it."""
    kind: Kind = "special case"
    if outer.at.endless:
        kind = "limit"
    elif outer.at.edits == ("anchor",):
        kind = "approximation"
    kind = "meeting" if inner.at != PLAIN else kind
    change = change_of(found)
    seen = ("k′ = φ(k)", "q′ = φ(q)") if inner.on_features else ()
    relation = Relation(inner.name, outer.name, kind, (*outer.at.words, *change.special),
                        inner.at.words, (*seen, *change.general), how=found.how)  # fmt: skip
    return Found(relation, outer.at, found, inner.at, inner.on_features)


def _merged(found: Mapping[tuple[str, str], Found]) -> Iterator[Found]:
    """Yield relations, those that hold both ways without special values once, as equality."""
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
        yield Found(relation, one.at, one.match, back=other.match)


def _free(found: Found) -> bool:
    """Return whether the relation needs no special value of the outer rule."""
    return found.at == PLAIN
