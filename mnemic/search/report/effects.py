"""The effect of each axis, all else equal: main effects and interactions over measured points.

Points that agree on every axis but one are a matched pair; four that agree on every axis but two
and take all four combinations are a matched square. Nothing is modelled: effects that no pair or
square shows are reported as unknown.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from pydantic import BaseModel

from mnemic.compiler.compare.differing_entries import short
from mnemic.dsl.axis import Family
from mnemic.dsl.coefficients import Coefficient
from mnemic.search.report.points import Point
from mnemic.search.space.neighbours import AXES, Axis
from mnemic.search.study.scores import Interval, interval

BLOCK: Final = "block"
Seeds = Mapping[int, float]
"""The mean skill of each seed."""
Levels = tuple[str, ...]
"""What a point has on each axis, in the order of `NAMES`."""
NAMES: Final = (*AXES, BLOCK)
FEWEST: Final = 10
"""Points below which no importance is told."""


@dataclass(frozen=True)
class Contrast:
    """The difference that one level of an axis makes against another.

    Args:
        axis: the axis of both levels.
        level: the level in question.
        reference: the level that it is compared with.
        size: the mean difference of skill with its interval, over matched pairs, or over the seeds
            of a single pair; the interval is infinite for a single pair on a single seed.
        pairs: the number of matched pairs.
    """

    axis: str
    level: str
    reference: str
    size: Interval
    pairs: int

    @property
    def sure(self) -> bool:
        """Whether the 95 % interval of the difference leaves out 0."""
        return abs(self.size.mean) > self.size.half


@dataclass(frozen=True)
class Interaction:
    """How much more a change does where another is made too, over matched squares."""

    axes: tuple[str, str]
    changes: tuple[str, str]
    size: Interval
    squares: int

    @property
    def sure(self) -> bool:
        """Whether the 95 % interval of the interaction leaves out 0."""
        return abs(self.size.mean) > self.size.half


@dataclass(frozen=True)
class Effects:
    """All effects of the axes over a set of points, and those that the points do not determine.

    Args:
        points: the number of points.
        main: by axis, each level against the most frequent one.
        interactions: the largest first.
        importance: by axis, its share by Optuna's PED-ANOVA; none for points chosen by hand.
        unknown: effects that are not determined, each with the reason.
    """

    points: int
    main: tuple[Contrast, ...]
    interactions: tuple[Interaction, ...]
    importance: Mapping[str, float]
    unknown: tuple[str, ...]


def effects(points: Sequence[Point], random: bool) -> Effects:
    """Return the effects over points; ``random`` says that they were drawn, not chosen by hand."""
    cells = _cells(points)
    main, unknown = list[Contrast](), list[str]()
    for index, axis in enumerate(NAMES):
        found, lacking = _of_axis(cells, index, axis)
        main += found
        unknown += lacking
    crossed = sorted(_interactions(cells), key=lambda one: -abs(one.size.mean))
    if not crossed:
        unknown.append("interactions: no four points differ in two axes alone")
    shares = importance(points) if random and len(points) >= FEWEST else {}
    if not random:
        unknown.append("importance: points chosen by hand are no sample of the space")
    return Effects(len(points), tuple(main), tuple(crossed), shares, tuple(unknown))


def levels(point: Point) -> Levels:
    """Return a point's level on each axis: a kind with its words, numbers left out."""
    named = tuple(_level(axis, point) for axis in AXES.values())
    block = point.spec.block.model_dump(mode="json", exclude_defaults=True)
    return (*named, short(block) if block else "default")


def _level(axis: Axis, point: Point) -> str:
    value = axis.of(point.spec)
    if isinstance(value, Family):
        return _kind(value)
    if axis.parts:
        told = dict(zip(axis.parts, value, strict=True))
        if len(told) == 1:
            return _shown(value[0])
        default = axis.of(type(point.spec)(name="any"))
        apart = {k: v for (k, v), d in zip(told.items(), default, strict=True) if v != d}
        return ", ".join(f"{k} {_shown(v)}" for k, v in apart.items()) or "default"
    return _shown(value)


def _kind(value: Family) -> str:
    """Return the kind and its words; numbers of a range would make every point its own level."""
    words = [str(getattr(value, name)) for name in type(value).model_fields
             if name != "kind" and isinstance(getattr(value, name), str)]  # fmt: skip
    return " ".join([type(value).word(), *words])


def _shown(value: Any) -> str:
    if isinstance(value, Family):
        return _kind(value)
    if isinstance(value, BaseModel):
        told = value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return short({**told, "per": value.per} if isinstance(value, Coefficient) else told)
    return short(value)


def _cells(points: Sequence[Point]) -> dict[Levels, Seeds]:
    """Return, by levels, the mean skill of each seed; points with the same levels are merged."""
    found = defaultdict[Levels, dict[int, list[float]]](lambda: defaultdict(list))
    for point in points:
        for seed, skill in point.seeds.items():
            found[levels(point)][seed].append(skill)
    return {
        at: {seed: statistics.fmean(skills) for seed, skills in seeds.items()}
        for at, seeds in found.items()
    }


def _of_axis(
    cells: Mapping[Levels, Seeds], index: int, axis: str
) -> tuple[list[Contrast], list[str]]:
    """Compare each level with the most frequent one; also return the levels without any pair."""
    count = Counter(at[index] for at in cells)
    if len(count) < 2:
        return [], [f"{axis}: every point has {next(iter(count))}"]
    reference = min(count, key=lambda level: (-count[level], level))
    found, lacking = list[Contrast](), list[str]()
    for level in (one for one, _ in count.most_common() if one != reference):
        pairs = list(_pairs(cells, index, level, reference))
        if not pairs:
            lacking.append(level)
            continue
        found.append(Contrast(axis, level, reference, _size(pairs), len(pairs)))
    found.sort(key=lambda one: -one.size.mean)
    reasons = {
        f"no matched pair with {reference} shows": lacking,
        "one pair on one seed, without an interval:": [
            one.level for one in found if math.isinf(one.size.half)
        ],
    }
    return found, [f"{axis}: {why} {', '.join(of)}" for why, of in reasons.items() if of]


def _pairs(
    cells: Mapping[Levels, Seeds], index: int, level: str, reference: str
) -> Iterator[list[float]]:
    """Yield, for every matched pair, the difference on each seed that both have."""
    for at, seeds in cells.items():
        if at[index] == level:
            other = cells.get((*at[:index], reference, *at[index + 1 :]))
            if other is not None and (common := seeds.keys() & other.keys()):
                yield [seeds[seed] - other[seed] for seed in sorted(common)]


def _size(found: Sequence[Sequence[float]]) -> Interval:
    """Return the mean's interval over pairs or squares, or over the seeds of a single one."""
    if len(found) == 1:
        return interval(found[0])
    return interval([statistics.fmean(seeds) for seeds in found])


def _interactions(cells: Mapping[Levels, Seeds]) -> Iterator[Interaction]:
    for i, j in combinations(range(len(NAMES)), 2):
        found = defaultdict[tuple[str, str], list[list[float]]](list)
        for key, seeds in _squares(cells, i, j):
            found[key].append(seeds)
        for changes, squares in found.items():
            yield Interaction((NAMES[i], NAMES[j]), changes, _size(squares), len(squares))


def _squares(
    cells: Mapping[Levels, Seeds], i: int, j: int
) -> Iterator[tuple[tuple[str, str], list[float]]]:
    """Yield every matched square's two changes and (y₁₁ − y₀₁) − (y₁₀ − y₀₀) on each seed.

    Each square is taken once: exchanging the levels of one axis only changes the sign.
    """
    groups = defaultdict[Levels, dict[tuple[str, str], Seeds]](dict)
    for at, seeds in cells.items():
        groups[(*at[:i], *at[i + 1 : j], *at[j + 1 :])][at[i], at[j]] = seeds
    for group in groups.values():
        for (a, b), (c, d) in combinations(sorted(group), 2):
            if a == c or b >= d or (a, d) not in group or (c, b) not in group:
                continue
            four = [group[corner] for corner in ((a, b), (c, b), (a, d), (c, d))]
            common = sorted(set.intersection(*(set(seeds) for seeds in four)))
            if common:
                y00, y10, y01, y11 = four
                apart = [(y11[s] - y01[s]) - (y10[s] - y00[s]) for s in common]
                yield (f"{a} → {c}", f"{b} → {d}"), apart


def importance(points: Sequence[Point]) -> dict[str, float]:
    """Return the share of each axis in the skill, by Optuna's PED-ANOVA over its levels."""
    import warnings

    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    rows = [levels(point) for point in points]
    known = {name: sorted({row[i] for row in rows}) for i, name in enumerate(NAMES)}
    space: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(found) for name, found in known.items() if len(found) > 1
    }
    if not space:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(direction="maximize")
        for row, point in zip(rows, points, strict=True):
            told = {name: row[NAMES.index(name)] for name in space}
            study.add_trial(
                optuna.create_trial(params=told, distributions=space, value=point.skill)
            )
        return dict(get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()))
