"""Find the best of several: the group that is not significantly below the highest mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Final

from scipy import stats

from mnemic.search.report.moderated import Spread, spreads

CONFIDENCE: Final = 0.95


def first_group(skills: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """Return the names that are not significantly below the best, highest mean first.

    Each name is compared with the one of the highest mean by a one-sided t test whose variance is
    the sum of the variances of both means. A name is left out if it is below with 95 % confidence
    over all comparisons together: with p below 5 % divided by the number of the others
    (Bonferroni), since any of them might have come out highest; Holm's correction would assume a
    rival that was not chosen by the data. From twenty names on the variances are shrunk towards a
    common value, see `spreads`.

    Degrees of freedom are the smaller of both, not Welch's: so far out in the tail Welch's are too
    many, and the truly best of sixty was left out in 7 % of draws of three seeds.

    Args:
        skills: by name, one value per seed.

    Returns:
        The group; all names with fewer than two seeds, since nothing can be distinguished then.

    >>> first_group({"a": [0.90, 0.91, 0.92], "b": [0.89, 0.91, 0.91], "c": [0.1, 0.12, 0.11]})
    ('a', 'b')
    """
    names = sorted(skills, key=lambda name: -mean(skills[name]))
    if not names:
        return ()
    best, *others = names
    spread = spreads(skills)
    most = (1 - CONFIDENCE) / max(1, len(others))
    inside = [name for name in others if _p_value(skills, spread, best, name) >= most]
    return (best, *inside)


def find_significant(tests: Mapping[str, float]) -> set[str]:
    """Return the names that are significant at 5 % over all tests together (Holm, 1979).

    >>> sorted(find_significant({"a": 0.001, "b": 0.02, "c": 0.04, "d": 0.5}))
    ['a']
    """
    found = set[str]()
    for place, name in enumerate(sorted(tests, key=tests.__getitem__)):
        if tests[name] * (len(tests) - place) >= 1 - CONFIDENCE:
            break
        found.add(name)
    return found


def _p_value(
    skills: Mapping[str, Sequence[float]], spread: Mapping[str, Spread], high: str, low: str
) -> float:
    """Return the p-value of the distance if ``low`` is not lower; 1 where seeds are too few."""
    if high not in spread or low not in spread:
        return 1.0
    apart = mean(skills[high]) - mean(skills[low])
    total = sum(spread[name].variance / len(skills[name]) for name in (high, low))
    if not total:
        return 0.0 if apart else 1.0
    degrees = min(spread[high].degrees, spread[low].degrees)
    return float(stats.t.sf(apart / total**0.5, degrees))
