"""The canonical form of a rule, and its hash: algebraically equal rules have equal forms.

The transition of the whole state is written out for d_v = D = 2 and expanded. A function that is
not a polynomial (a Huber error, a link) is kept as one symbol, with one normalised spelling. A
rule whose memory is not ``W φ`` is given by its terms instead.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, permutations, product
from typing import Any

import sympy as sp

from mnemic.compiler.compare.coordinates import called, like
from mnemic.compiler.compare.entry_form import Form, pruned
from mnemic.compiler.compare.solving import Clock
from mnemic.compiler.compare.written import write_out
from mnemic.compiler.numbers import Answer, compare
from mnemic.compiler.ranges import spans_of
from mnemic.compiler.rule import Rule

ALGEBRA = 5.0
"""Processor time after which what numbers found the same is no longer looked at by algebra."""

MOST_ORDERS = 120
"""Orders of indistinguishable coefficients that are tried for the smallest text."""


def canonical(rule: Rule, values: Mapping[Any, Any] | None = None) -> Form:
    """Return the rule's form, coefficients under their own names, at special ``values``."""
    found = pruned(write_out(rule, values or {}))
    return replace(found, ranges=tuple(spans_of(rule.scalars).items()))


def rule_hash(rule: Rule) -> str:
    """Return the SHA-256 of the form, its coefficients renamed by the role that each plays."""
    return hashlib.sha256(renamed(canonical(rule)).text().encode()).hexdigest()


def renamed(form: Form) -> Form:
    """Rename the form's coefficients to c0, c1, … in an order that does not depend on names."""
    return min((found for _, found in _numberings(form)), key=lambda f: f.text())


def identified(form: Form, fact: Callable[[Any], str]) -> str:
    """Return the renamed form's text, and the fact of each coefficient in the order of c0, c1, …"""
    return min(
        "\n".join([found.text(), *(f"c{i}: {fact(s)}" for i, s in enumerate(order))])
        for order, found in _numberings(form)
    )


def _numberings(form: Form) -> Iterator[tuple[list[Any], Form]]:
    """Yield every order of the coefficients that their roles leave open, each with its form."""
    groups: dict[str, list[Any]] = {}
    for symbol in form.coefficients:
        groups.setdefault(_part(form, symbol), []).append(symbol)
    orders = product(*(permutations(groups[part]) for part in sorted(groups)))
    for order in islice(orders, MOST_ORDERS):
        flat = [symbol for group in order for symbol in group]
        yield flat, _numbered(form, flat)


def _part(form: Form, symbol: Any) -> str:
    """Return the role of a coefficient as text: the form without the names of coefficients.

    SymPy may print two symbols of one name in either order, so other coefficients that may have
    any sign carry a mark until the terms are sorted.
    """
    others = {s: like(s, "other" if s.is_positive else "other'") for s in form.coefficients}
    me = like(symbol, "me")
    told = form.mapped(lambda e: called(e, {**others, symbol: me})).text()
    return told.replace("other'", "other")


def _numbered(form: Form, order: list[Any]) -> Form:
    table = {s: like(s, f"c{i}") for i, s in enumerate(order)}
    return form.mapped(lambda e: sp.expand(called(e, table)))


@dataclass(frozen=True)
class Sameness:
    """Whether two forms agree, and how it was found: ``algebra`` or ``random numbers``.

    ``open`` where no numbers told them apart, and not every branch of theirs was reached.
    """

    equal: bool
    how: str

    def __bool__(self) -> bool:
        return self.equal


def same(one: Form, other: Form) -> Sameness:
    """Compare two forms entry by entry, by algebra and where that fails at 30 digits."""
    if one.skeleton() != other.skeleton():
        return Sameness(False, "algebra")
    pairs = list(zip(one.entries(), other.entries(), strict=True))
    pairs += [(a, b) for (_, a), (_, b) in zip(one.functions, other.functions, strict=True)]
    pairs += [(a, b) for (_, a), (_, b) in zip(one.features, other.features, strict=True)]
    open_pairs = [(a, b) for a, b in pairs if a != b and sp.expand(a - b) != 0]
    if not open_pairs:
        return Sameness(True, "algebra")
    found = compare_all(open_pairs, joint_reach(one, other))
    if found != "same":
        return Sameness(False, "open" if found == "open" else "random numbers")
    clock = Clock.starting(ALGEBRA)
    solved = all(not clock.out and _vanishes(a - b) for a, b in open_pairs)
    return Sameness(True, "algebra" if solved else "random numbers")


def compare_all(
    pairs: Iterable[tuple[Any, Any]], reach: dict[Any, tuple[float, float]], points: int = 4
) -> Answer:
    """Return what numbers say of pairs of expressions together."""
    found: Answer = "same"
    for one, other in pairs:
        answer = compare(one, other, points, reach) if one != other else "same"
        if answer == "different":
            return answer
        found = "open" if answer == "open" else found
    return found


def compare_features(one: Form, other: Form) -> Answer:
    """Compare the feature maps of two forms of one skeleton, as functions."""
    return _compare_functions(one.features, other.features)


@cache
def _compare_functions(
    one: tuple[tuple[str, Any], ...], other: tuple[tuple[str, Any], ...]
) -> Answer:
    return compare_all(((a, b) for (_, a), (_, b) in zip(one, other, strict=True)), {})


def joint_reach(one: Form, other: Form) -> dict[Any, tuple[float, float]]:
    """Return the range of each coefficient, of one that both have as far as either reaches."""
    mine, theirs = one.reach, other.reach
    both = {s: (min(low, theirs[s][0]), max(high, theirs[s][1]))
            for s, (low, high) in mine.items() if s in theirs}  # fmt: skip
    return {**mine, **theirs, **both}


def _vanishes(difference: Any) -> bool:
    """Return whether cheap algebra shows a difference to be zero."""
    if difference.has(sp.Piecewise, sp.Abs, sp.sign, sp.Max, sp.Min):
        return False
    plain = sp.expand(difference.rewrite(sp.exp), power_exp=True)
    return bool(sp.expand(sp.fraction(sp.together(plain))[0]) == 0)
