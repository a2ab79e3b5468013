"""Which of several are the best: those that no other is above, told with confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Final

from scipy import stats

CONFIDENCE: Final = 0.95


def first_group(skills: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """Return the names that are not told apart from the best, highest mean first.

    Each name is compared with the one of the highest mean: Welch's one-sided t test, which lets
    variances differ, its p-values corrected by Holm (1979) for as many comparisons as there are. A
    name is outside where it is below with 95 % confidence, all comparisons together.

    Args:
        skills: by name one value a seed.

    Returns:
        The group; everything where seeds are fewer than two, since nothing is told apart then.

    >>> first_group({"a": [0.90, 0.91, 0.92], "b": [0.89, 0.91, 0.91], "c": [0.1, 0.12, 0.11]})
    ('a', 'b')
    """
    names = sorted(skills, key=lambda name: -mean(skills[name]))
    if not names:
        return ()
    best, *others = names
    outside = find_significant({name: _p_value(skills[best], skills[name]) for name in others})
    return tuple(name for name in names if name not in outside)


def find_significant(tests: Mapping[str, float]) -> set[str]:
    """Return the names whose p-values hold with 95 % confidence, all tests together (Holm, 1979).

    >>> sorted(find_significant({"a": 0.001, "b": 0.02, "c": 0.04, "d": 0.5}))
    ['a']
    """
    found = set[str]()
    for place, name in enumerate(sorted(tests, key=tests.__getitem__)):
        if tests[name] * (len(tests) - place) >= 1 - CONFIDENCE:
            break
        found.add(name)
    return found


def _p_value(high: Sequence[float], low: Sequence[float]) -> float:
    """Return how likely such a distance is if ``low`` is not lower; 1 where seeds are too few."""
    if min(len(high), len(low)) < 2:
        return 1.0
    if max(high) == min(high) and max(low) == min(low):  # SciPy has no answer without variance
        return 0.0 if high[0] > low[0] else 1.0
    moments = [(mean(x), stdev(x), len(x)) for x in (high, low)]  # seeds may be alike to rounding
    found = stats.ttest_ind_from_stats(
        *moments[0], *moments[1], equal_var=False, alternative="greater"
    )
    return float(found.pvalue)
