"""Summarise runs: skills over tasks and seeds, with confidence intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import stdtrit

from mnemic.search.study.training import Run


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % confidence interval; infinite for one seed."""

    mean: float
    half: float
    seeds: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.half

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + (f" ± {self.half:.3f}" if self.seeds > 1 else "")


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of one value a seed with its 95 % interval.

    >>> str(interval([0.5, 0.6, 0.7]))
    '0.600 ± 0.248'
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, math.inf, 1)
    return Interval(mean, _t(n - 1) * statistics.stdev(values) / math.sqrt(n), n)


def _t(degrees: float, confidence: float = 0.95) -> float:
    """Return Student's t for a two-sided interval."""
    return float(stdtrit(degrees, (1 + confidence) / 2))


def above(one: Interval, other: Interval, confidence: float = 0.95) -> bool:
    """Return whether one mean is significantly above another, by Welch's test (1947).

    The interval of their difference must lie above 0. Its half width is t_ν √(a + b), with a and b
    the means' squared standard errors and
    ν = (a + b)² / (a²/(n − 1) + b²/(m − 1)). False with one seed.

    >>> above(interval([0.5, 0.6, 0.7]), interval([0.1, 0.2, 0.1]))
    True
    """
    if min(one.seeds, other.seeds) < 2:
        return False
    a, b = ((x.half / _t(x.seeds - 1)) ** 2 for x in (one, other))
    if a + b == 0:
        return one.mean > other.mean
    degrees = (a + b) ** 2 / (a**2 / (one.seeds - 1) + b**2 / (other.seeds - 1))
    return one.mean - other.mean > _t(degrees, confidence) * math.sqrt(a + b)


def by_task(runs: Iterable[Run]) -> dict[str, list[float]]:
    """Return the skills on each task, one a seed."""
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(run.task, []).append(run.skill)
    return found


def by_seed(runs: Iterable[Run]) -> list[float]:
    """Return the mean skill over tasks, one a seed."""
    found: dict[int, list[float]] = {}
    for run in runs:
        found.setdefault(run.seed, []).append(run.skill)
    return [math.fsum(skills) / len(skills) for skills in found.values()]


def device_of(runs: Iterable[Run]) -> str | None:
    """Return the device on which all runs were timed; None where there are several."""
    found = {run.device for run in runs}
    return found.pop() if len(found) == 1 else None


def measured(runs: Sequence[Run], seen: Mapping[str, Any]) -> dict[str, float]:
    """Return every objective: ``mean``, each task, each cost."""
    skills = {task: math.fsum(found) / len(found) for task, found in by_task(runs).items()}
    return {
        **skills,
        "mean": math.fsum(skills.values()) / len(skills),
        "parameters": float(seen["parameters"]),
        "state_bytes": float(seen["state_bytes"]),
        "flops": float(seen["flops"]),
        "training_flops": float(seen.get("training_flops") or math.nan),
        "step_seconds": math.fsum(run.step_seconds for run in runs) / len(runs),
    }
