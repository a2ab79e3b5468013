"""The verdict of a comparison: equal, equal under a change, a special case, or not found."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from mnemic.compiler.compare.canonical import canonical, compare_features, rule_hash
from mnemic.compiler.compare.canonical import same as alike
from mnemic.compiler.compare.changes import Change, change_of, leaves
from mnemic.compiler.compare.entry_form import Form
from mnemic.compiler.compare.matching import Match, inverse, match
from mnemic.compiler.compare.solving import Clock
from mnemic.compiler.compare.special import Special, pairs, singles
from mnemic.compiler.decisions import splits
from mnemic.compiler.explain.printing import text
from mnemic.compiler.rule import Rule

SECONDS = 15.0
"""Processor time that the search may take unless told."""

INVERSE = 3.0
"""Processor time for the inverse of a change, where time ran out over the other direction."""

Kind = Literal["equal", "equal-under-change", "a-in-b", "b-in-a", "different"]


@dataclass(frozen=True)
class Verdict:
    """``kind``; ``at`` the special values (``α = 1``); ``change`` of B's coefficients in terms of
    A's (of A's in terms of B's for ``b-in-a``) and ``back``, its inverse; ``how`` it was found;
    ``finished`` whether the search came to its end."""

    kind: Kind
    sentence: str
    at: tuple[str, ...] = ()
    change: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    how: str = "algebra"
    finished: bool = True

    def __str__(self) -> str:
        return self.sentence

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return {key: list(x) if isinstance(x, tuple) else x for key, x in asdict(self).items()}


def judge(a: Rule, b: Rule, seconds: float = SECONDS) -> Verdict:
    """Compare two rules by their canonical forms."""
    clock = Clock.starting(seconds)
    one, other = canonical(a), canonical(b)
    there, back = _both_ways(one, other, clock)
    if there is not None and (there.trivial or there.renaming) and back is not None:
        return _equal(there, one, other)
    if rule_hash(a) == rule_hash(b):
        return Verdict("equal", "A and B are the same rule with other names.")
    if one.coefficients == other.coefficients and alike(one, other).how == "open":
        return Verdict("different", _OPEN, how="random numbers", finished=False)
    if there is not None and back is not None:
        return _changed(there, back, one, other)
    if there is not None:
        return _open(_inside("a-in-b", (), there, one, other), "B is A", clock)
    if back is not None:
        return _open(_inside("b-in-a", (), back, other, one), "A is B", clock)
    return _special(a, b, one, other, clock)


def same(a: Rule, b: Rule, seconds: float = SECONDS) -> bool:
    """Return whether two rules are the same up to the names of their coefficients."""
    clock = Clock.starting(seconds)
    one, other = canonical(a), canonical(b)
    there = match(one, other, clock)
    if there is not None and (there.trivial or there.renaming):
        return match(other, one, clock) is not None
    return rule_hash(a) == rule_hash(b)


def _both_ways(one: Form, other: Form, clock: Clock) -> tuple[Match | None, Match | None]:
    """Match two forms each way; where time ran out over one way, invert the change of the other."""
    there, back = match(one, other, clock), match(other, one, clock)
    if clock.out and there is not None and back is None:
        back = inverse(one, other, there, Clock.starting(INVERSE))
    elif clock.out and back is not None and there is None:
        there = inverse(other, one, back, Clock.starting(INVERSE))
    return there, back


def _equal(found: Match, one: Form, other: Form) -> Verdict:
    names = () if found.trivial else change_of(found).lines
    sentence = "A and B are the same rule" + (f", with {', '.join(names)}" if names else "")
    sentence += _confirmed(found.how, one, other)
    return Verdict("equal", sentence, change=names, how=found.how)


def _changed(there: Match, back: Match, one: Form, other: Form) -> Verdict:
    forth, again = change_of(there), change_of(back)
    sentence = f"A is B with {_joined(forth)}; B is A with {_joined(again)}"
    sentence += _confirmed(there.how, one, other) + (
        _limits(there, one, other) or _limits(back, other, one)
    )
    return Verdict("equal-under-change", sentence, change=forth.lines, back=again.lines,
                   how=there.how)  # fmt: skip


def _limits(found: Match, inner: Form, outer: Form) -> str:
    if leaves(found, dict(inner.ranges), dict(outer.ranges)):
        return " For some values the change leaves the range of a coefficient."
    return ""


def _inside(
    kind: Kind, at: tuple[str, ...], found: Match, inner: Form, outer: Form
) -> Verdict:  # fmt: skip
    change = change_of(found)
    values = (*at, *change.special)
    rest = change.general
    names = ("A", "B") if kind == "a-in-b" else ("B", "A")
    sentence = f"{names[0]} is {names[1]}"
    sentence += f" at {', '.join(values)}" if values else ""
    sentence += f" with {', '.join(rest)}" if rest else ""
    sentence += _confirmed(found.how, inner, outer) + _limits(found, inner, outer)
    return Verdict(kind, sentence, at=values, change=change.lines, how=found.how)


def _open(found: Verdict, other: str, clock: Clock) -> Verdict:
    """Return the verdict, noting where time ran out before the other direction was settled."""
    if not clock.out:
        return found
    sentence = f"{found.sentence} Whether {other} was not settled: the search ran out of time."
    return replace(found, sentence=sentence, finished=False)


def _special(a: Rule, b: Rule, one: Form, other: Form, clock: Clock) -> Verdict:
    """Look for special values, single ones first, at which one rule is the other."""
    for count in (1, 2):
        if found := _search(one, b, count, clock):
            return _inside("a-in-b", found[0].words, found[1], one, other)
        if found := _search(other, a, count, clock):
            return _inside("b-in-a", found[0].words, found[1], other, one)
    sentence = f"A and B differ{_features(one, other)}: no change of coefficients and no special "
    sentence += "values were found that make one of the other." + (
        " The search ran out of time." if clock.out else ""
    )
    return Verdict("different", sentence, finished=not clock.out)


_OPEN = (
    "Whether A and B are the same rule was not settled: random numbers found no difference, but "
    "did not come into every case that their expressions tell apart."
)


def _features(one: Form, other: Form) -> str:
    """Name the feature maps of two forms of one shape, where they are different functions."""
    if one.skeleton() != other.skeleton() or compare_features(one, other) == "same":
        return ""
    pairs = zip(one.features, other.features, strict=True)
    told = [f"{name} = {text(x)} in A and {text(y)} in B" for (name, x), (_, y) in pairs]
    return f" in their features, {', '.join(told)}"


def _search(inner: Form, outer: Rule, count: int, clock: Clock) -> tuple[Special, Match] | None:
    for special in singles(outer) if count == 1 else pairs(outer):
        if clock.out:
            return None
        form = special.form(outer)
        if form is None or form.skeleton() != inner.skeleton():
            continue
        found = match(inner, form, clock)
        if found is not None:
            return special, found
    return None


def _joined(change: Change) -> str:
    return ", ".join(change.lines)


def _confirmed(how: str, one: Form, other: Form) -> str:
    """Say how a verdict was found; random numbers never lie where two cases of a function meet."""
    if how == "algebra":
        return ", by algebra and on random numbers."
    told = ", on random numbers to 30 digits; algebra did not settle it."
    bodies = [x for form in (one, other) for x in form.entries()]
    bodies += [x for form in (one, other) for _, x in (*form.functions, *form.features)]
    return told + (BETWEEN if any(map(splits, bodies)) else "")


BETWEEN = " At single numbers, where two cases meet, they may differ."
