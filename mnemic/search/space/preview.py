"""A sample of a space: how many points are valid, and why the others are not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, Issue
from mnemic.search.space.asking import by_chance
from mnemic.search.space.choices import Answer, Choose
from mnemic.search.space.identity import identity
from mnemic.search.space.space import Space

SAMPLES = 200


@dataclass(frozen=True)
class Preview:
    """The statistics of a sample of a space.

    Args:
        size: the number of combinations; infinite where a range is continuous.
        sampled: the number of points drawn, each option equally likely.
        valid: the number of points that derive and compile.
        distinct: the number of different rules among these.
        reasons: why the others are not valid, each with the number of its points.
        options: by choice and option, how many points had it and how many of those were valid.
        classes: by structural class, the number of valid points.
    """

    size: float
    sampled: int
    valid: int
    distinct: int
    reasons: dict[str, int]
    options: dict[str, dict[str, tuple[int, int]]]
    classes: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the preview as plain data; a size that is infinite as null."""
        return {
            "size": self.size if self.size < float("inf") else None,
            "sampled": self.sampled,
            "valid": self.valid,
            "distinct": self.distinct,
            "reasons": [{"reason": r, "points": n} for r, n in self.reasons.items()],
            "options": {
                name: {label: list(pair) for label, pair in counted.items()}
                for name, counted in self.options.items()
            },
            "classes": self.classes,
        }


def preview(
    space: Space, samples: int = SAMPLES, seed: int = 0, told: Callable[[int], None] | None = None
) -> Preview:
    """Draw points, each option equally likely, and test which of them derive and compile.

    ``told`` is called with the number of points tested so far.
    """
    ask = by_chance(random.Random(seed))
    reasons: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    seen: Counter[tuple[str, str]] = Counter()
    good: Counter[tuple[str, str]] = Counter()
    rules: set[str] = set()
    known: dict[str, Seen] = {}
    valid = 0
    for index in range(samples):
        answers, (reason, kind, rule) = _looked_at(space, ask, known)
        taken = [(n, str(a)) for n, a in answers.items() if isinstance(space.choices[n], Choose)]
        seen.update(taken)
        if reason is not None:
            reasons[reason] += 1
        else:
            valid += 1
            good.update(taken)
            classes[kind] += 1
            rules.add(rule)
        if told is not None:
            told(index + 1)
    options: dict[str, dict[str, tuple[int, int]]] = {}
    for name, label in sorted(seen):
        options.setdefault(name, {})[label] = (seen[name, label], good[name, label])
    ordered = dict(reasons.most_common())
    return Preview(space.size, samples, valid, len(rules), ordered, options,
                   dict(classes.most_common()))  # fmt: skip


Seen = tuple[str | None, str, str]
"""Why a spec is not valid (or None), its class, its rule's identity."""


def _looked_at(space: Space, ask: Any, known: dict[str, Seen]) -> tuple[dict[str, Answer], Seen]:
    """Draw one point; return its answers and its spec's result (``known``: earlier results)."""
    answers: dict[str, Answer] = {}

    def noted(name: str, choice: Any) -> Answer:
        answers[name] = ask(name, choice)
        return answers[name]

    try:
        spec = space.point(noted).spec
    except InvalidSpec as error:
        return answers, (reason_of(error, space.name), "", "")
    key = spec_hash(spec)
    if key not in known:
        known[key] = _derived(spec, space.name)
    return answers, known[key]


def _derived(spec: Spec, name: str) -> Seen:
    from mnemic.compiler.uncompiled import refuse
    from mnemic.pipeline import derive

    try:
        rule = derive(spec)
        refuse(rule)
    except InvalidSpec as error:
        return reason_of(error, name), "", ""
    return None, rule.structure.kind, identity(rule)


def demand_points(space: Space, samples: int = 100, seed: int = 0) -> None:
    """Raise InvalidSpec, with the reasons, where no sampled point is a valid spec."""
    ask = by_chance(random.Random(seed))
    reasons: Counter[str] = Counter()
    for _ in range(samples):
        try:
            space.point(ask)
        except InvalidSpec as error:
            reasons[reason_of(error, space.name)] += 1
        else:
            return
    told = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))
    message = f"none of {samples} sampled points is a valid spec: {told}"
    raise InvalidSpec((Issue(message, space.document.source or space.name),))


def reason_of(error: InvalidSpec, name: str) -> str:
    """Say why a spec is invalid, with the place in it, but without position or the spec's name."""
    first = error.issues[0]
    where = first.where.rpartition(" ")[2]
    known = "" if ":" in where or where.startswith(name) else where
    return ": ".join(part for part in (known, first.message or f"read {first.read}") if part)
