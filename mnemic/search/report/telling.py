"""How far each task tells specs apart: one that all solve, or none, tells nothing."""

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
    """How the skills of specs lie on one task.

    Args:
        lowest: mean skill of the spec that has the least.
        low: what nine specs in ten have at least.
        middle: what half of them have at least.
        high: what one in ten has at least.
        highest: of the spec that has the most.
        reliability: the part of the variance of specs' means that is not seeds', from 0 to 1.
    """

    lowest: float
    low: float
    middle: float
    high: float
    highest: float
    reliability: float

    @property
    def fault(self) -> str:
        """Say why the task tells little; empty where it tells specs apart."""
        if self.low >= 1 - NEAR:
            return "nearly all solve it"
        if self.high <= NEAR:
            return "hardly any learns it"
        return "seeds differ more than specs" if self.reliability < HALF else ""


def telling(skills: Mapping[str, Sequence[float]]) -> Telling | None:
    """Return how the skills of specs lie on a task; None of fewer than `FEWEST` specs.

    With n seeds, B = n · variance of specs' means and W the mean variance over seeds, the
    reliability is (B − W)/B, at least 0: the intraclass correlation ICC(1, n) of Shrout and Fleiss
    (1979), Intraclass correlations: uses in assessing rater reliability.

    Args:
        skills: by spec one value a seed, two at least; what has fewer is left out.
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
