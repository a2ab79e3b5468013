"""How much each choice matters for the skill: PED-ANOVA over the points that were trained."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import optuna
from optuna.importance import PedAnovaImportanceEvaluator

from mnemic.search.space.space import Space
from mnemic.search.study.records import Record, distinct
from mnemic.search.study.scores import measured

FEWEST = 10
"""Points below which nothing is said."""


def first_skills(space: Space, records: Sequence[Record]) -> list[tuple[Record, float]]:
    """Every trained point with its mean skill at the first rung that trains, alike for all."""
    rung = next(i for i, rung in enumerate(space.settings.rungs) if rung.steps is not None)
    return [
        (one, measured(one.runs(rung), one.attributes["look"])["mean"])
        for one in distinct(records)
        if one.runs(rung)
    ]


def importance(space: Space, records: Sequence[Record]) -> dict[str, float]:
    """The share of each choice, largest first; empty where too few points were trained."""
    found = first_skills(space, records)
    if len(found) < FEWEST or len({skill for _, skill in found}) < 2:
        return {}
    study = optuna.create_study(direction="maximize")
    study.add_trials([
        optuna.create_trial(value=skill, params=one.answers, distributions=one.distributions)
        for one, skill in found
    ])  # fmt: skip
    evaluator = PedAnovaImportanceEvaluator()
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of values seen once
        told = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return dict(told)
