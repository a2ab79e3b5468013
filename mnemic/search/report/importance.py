"""How much each choice matters for the skill: analysis of variance over the points trained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mnemic.search.space.choices import Choice, Choose
from mnemic.search.space.space import Space
from mnemic.search.study.records import Record, distinct
from mnemic.search.study.scores import measured

FEWEST = 10
"""Points with a choice below which nothing is said of it."""

GROUPS = 3
"""A range is cut into as many groups of equal size."""


def first_skills(space: Space, records: Sequence[Record]) -> list[tuple[Record, float]]:
    """Return each trained point with its mean skill at the first trained rung, common to all."""
    rung = next(i for i, rung in enumerate(space.settings.rungs) if rung.steps is not None)
    return [
        (one, measured(one.runs(rung), one.attributes["look"])["mean"])
        for one in distinct(records)
        if one.runs(rung)
    ]


def importance(space: Space, records: Sequence[Record]) -> dict[str, float]:
    """Return the share of the skill's variance that each choice alone explains, largest first."""
    return explained(space.choices, first_skills(space, records))


def explained(
    choices: dict[str, Choice], found: Sequence[tuple[Record, float]]
) -> dict[str, float]:
    """Compute Σ_g n_g (s̄_g − s̄)² − (G − 1) s_w² over all points' sum of squares; not below 0.

    The G groups are the answers to a choice (a range is cut into `GROUPS` of equal size), and s̄_g
    their mean skills; s̄ and the variance within groups s_w² are over the points that made the
    choice. The subtracted term is what groups explain by chance. A choice inside an option concerns
    only the points with that option, so its importance is bounded by the difference it makes there.

    Returns:
        The shares; choices with fewer than `FEWEST` points, or one group, are left out.
    """
    total = _squares([skill for _, skill in found])
    shares = {}
    for name, choice in choices.items():
        asked = [(one.answers[name], skill) for one, skill in found if name in one.answers]
        groups = _groups(choice, asked) if len(asked) >= FEWEST else []
        if 1 < len(groups) < len(asked) and total > 0:
            shares[name] = max(0.0, _between(groups) / total)
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _groups(choice: Choice, asked: Sequence[tuple[object, float]]) -> list[list[float]]:
    """Group the skills of points with the same answer, or with answers that are near."""
    found = defaultdict[object, list[float]](list)
    if isinstance(choice, Choose):
        for answer, skill in asked:
            found[answer].append(skill)
        return list(found.values())
    answers = sorted(float(str(answer)) for answer, _ in asked)
    edges = [answers[len(answers) * i // GROUPS] for i in range(1, GROUPS)]
    for answer, skill in asked:
        found[sum(float(str(answer)) >= edge for edge in edges)].append(skill)
    return list(found.values())


def _between(groups: Sequence[Sequence[float]]) -> float:
    """Return the sum of squares between groups, minus its expectation if groups do not differ."""
    every = [skill for group in groups for skill in group]
    within = sum(map(_squares, groups))
    chance = (len(groups) - 1) * within / (len(every) - len(groups))
    return _squares(every) - within - chance


def _squares(skills: Sequence[float]) -> float:
    """Compute Σ (s − s̄)²."""
    mean = sum(skills) / max(len(skills), 1)
    return sum((skill - mean) ** 2 for skill in skills)
