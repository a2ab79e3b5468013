"""Variances over seeds, estimated from many small samples together (Smyth, 2004)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance
from typing import Final

from scipy.optimize import brentq
from scipy.special import digamma, polygamma

FEWEST: Final = 20
"""Samples from which it is told what variances have in common."""

LEAST: Final = 1e-5
"""Of the median: what a variance counts as at least, where seeds agree to the last digit."""


@dataclass(frozen=True)
class Spread:
    """A variance and its degrees of freedom."""

    variance: float
    degrees: float


def spreads(samples: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """Return the variance of each sample, shrunk towards a value common to all samples.

    Three seeds estimate a variance s² with d = 2 degrees of freedom, so badly that Student's t
    has almost no power. If variances are taken to follow one scaled inverse χ² distribution with
    d₀ degrees of freedom and scale s₀², the posterior mean is (d₀ s₀² + d s²)/(d₀ + d), with
    d₀ + d degrees of freedom. The moments of ln s² over all samples give d₀ and s₀²: where the
    variances differ much, d₀ is small and each stays nearly as it is. With fewer samples than
    `FEWEST` this is not estimated, and each keeps its own variance.

    Source: Smyth (2004), Linear models and empirical Bayes methods for assessing differential
    expression in microarray experiments, sections 3 and 6.2.

    Args:
        samples: by name at least two values; what has fewer is left out.
    """
    own = {name: Spread(variance(x), len(x) - 1) for name, x in samples.items() if len(x) > 1}
    if len(own) < FEWEST or not any(one.variance for one in own.values()):
        return own
    degrees, common = _prior(list(own.values()))
    if math.isinf(degrees):
        return {name: Spread(common, math.inf) for name in own}
    return {
        name: Spread(
            (degrees * common + one.degrees * one.variance) / (degrees + one.degrees),
            degrees + one.degrees,
        )
        for name, one in own.items()
    }


def _prior(own: Sequence[Spread]) -> tuple[float, float]:
    """Return d₀ and s₀²: with e = ln s² − ψ(d/2) + ln(d/2), ψ′(d₀/2) = var e − mean ψ′(d/2) and
    ln s₀² = mean e + ψ(d₀/2) − ln(d₀/2). d₀ is infinite where the right side is not above 0."""
    least = LEAST * median(one.variance for one in own) or min(
        x.variance for x in own if x.variance
    )
    logs = [
        math.log(max(one.variance, least)) - digamma(one.degrees / 2) + math.log(one.degrees / 2)
        for one in own
    ]
    beyond = variance(logs) - fmean(float(polygamma(1, one.degrees / 2)) for one in own)
    if beyond <= float(polygamma(1, 1e6)):
        return math.inf, math.exp(fmean(logs))
    half = brentq(lambda x: float(polygamma(1, x)) - beyond, 1e-6, 1e6)
    return 2 * half, math.exp(fmean(logs) + digamma(half) - math.log(half))
