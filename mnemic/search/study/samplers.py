"""The samplers, which propose points."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Final

import optuna
from optuna.samplers import (
    BaseSampler,
    GPSampler,
    NSGAIIISampler,
    NSGAIISampler,
    RandomSampler,
    TPESampler,
)

STARTUP: Final = 16
"""Trials by chance before a model of the objective is fitted."""
POPULATION: Final = 24


def sampler(name: str, seed: int) -> BaseSampler:
    """Return the sampler of that name.

    ``grid`` takes all points from the study's queue; its sampler is never asked for one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return _MAKERS[name](seed)


def _tpe(seed: int) -> BaseSampler:
    """Make a multivariate TPE sampler, with groups of axes that occur together."""
    return TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True, group=True)


def _gp(seed: int) -> BaseSampler:
    return GPSampler(seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False)


_MAKERS: Final[dict[str, Callable[[int], BaseSampler]]] = {
    "tpe": _tpe,
    "gp": _gp,
    "nsga2": lambda seed: NSGAIISampler(seed=seed, population_size=POPULATION),
    "nsga3": lambda seed: NSGAIIISampler(seed=seed, population_size=POPULATION),
    "random": lambda seed: RandomSampler(seed=seed),
    "grid": lambda seed: RandomSampler(seed=seed),
}
