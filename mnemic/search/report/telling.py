"""How well each task separates specs: one that all or none solve says nothing about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles, variance
from typing import Final

FEWEST: Final = 10
"""Specs from which it is told what most of them have."""

NEAR: Final = 0.05
"""Skill within which of 0 or 1 a task counts as not learned, or as solved."""

HALF: Final = 0.5
"""Reliability below which the distances between specs are more seeds' than specs'."""


@dataclass(frozen=True)
class Telling:
    """The distribution of the specs' mean skills on one task.

    Args:
        lowest: the lowest mean skill.
        low: the skill that nine specs in ten reach.
        middle: the skill that half of the specs reach.
        high: the skill that one spec in ten reaches.
        highest: the highest mean skill.
        reliability: the share of the variance of specs' means that is not due to seeds, from 0
            to 1.
    """

    lowest: float
    low: float
    middle: float
    high: float
    highest: float
    reliability: float

    @property
    def fault(self) -> str:
        """Say why the task separates specs badly; empty where it separates them."""
        if self.low >= 1 - NEAR:
            return "nearly all solve it"
        if self.high <= NEAR:
            return "hardly any learns it"
        return "seeds differ more than specs" if self.reliability < HALF else ""


def telling(skills: Mapping[str, Sequence[float]]) -> Telling | None:
    """Return the distribution of skills on a task; None for fewer than `FEWEST` specs.

    With n seeds, B = n · variance of specs' means and W the mean variance over seeds, the
    reliability is (B − W)/B, at least 0: the intraclass correlation ICC(1, n) of Shrout and Fleiss
    (1979), Intraclass correlations: uses in assessing rater reliability.

    Args:
        skills: by spec, one value per seed; specs with fewer than two are left out.
    """
    several = {name: values for name, values in skills.items() if len(values) > 1}
    if len(several) < FEWEST:
        return None
    means = sorted(fmean(values) for values in several.values())
    tenths = quantiles(means, n=10, method="inclusive")
    seeds = fmean(variance(values) / len(values) for values in several.values())
    apart = variance(means)
    return Telling(
        lowest=means[0], low=tenths[0], middle=tenths[4], high=tenths[8], highest=means[-1],
        reliability=max(0.0, 1 - seeds / apart) if apart else 0.0,
    )  # fmt: skip
