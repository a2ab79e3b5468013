"""How far a task tells specs apart, beside an analysis of variance."""

import numpy as np
import pytest
from scipy import stats

from mnemic.search.report.entries import Entry
from mnemic.search.report.standings import tell_tasks
from mnemic.search.report.telling import telling
from mnemic.search.study.training import Run
from mnemic.search.study.work import Look


def drawn(between: float, within: float, mean: float = 0.5, specs: int = 40):
    rng = np.random.default_rng(0)
    means = mean + between * rng.standard_normal(specs)
    return {f"s{i}": list(m + within * rng.standard_normal(3)) for i, m in enumerate(means)}


@pytest.mark.parametrize(("between", "within"), [(0.2, 0.05), (0.1, 0.1), (0.05, 0.3)])
def test_reliability_is_what_an_analysis_of_variance_says(between, within):
    """With equal numbers of seeds it is 1 − 1/F."""
    skills = drawn(between, within)
    statistic = stats.f_oneway(*skills.values()).statistic
    assert telling(skills).reliability == pytest.approx(max(0.0, 1 - 1 / statistic))


@pytest.mark.parametrize(
    ("skills", "fault"),
    [
        (drawn(0.2, 0.05), ""),
        (drawn(0.05, 0.3), "seeds differ more than specs"),
        (drawn(0.0, 0.001, mean=0.99), "nearly all solve it"),
        (drawn(0.0, 0.001, mean=0.0), "hardly any learns it"),
        (drawn(0.01, 0.001, mean=0.5), ""),
        (
            {**drawn(0.0, 0.0, mean=1.0), "one": [0.0, 0.0], "two": [0.1, 0.1]},
            "nearly all solve it",
        ),
    ],
)
def test_what_is_wrong_with_a_task_is_said(skills, fault):
    assert telling(skills).fault == fault


def test_quantiles_are_of_the_specs_means():
    told = telling({f"s{i}": [i / 10, i / 10] for i in range(11)})
    found = (told.lowest, told.low, told.middle, told.high, told.highest)
    assert found == pytest.approx((0.0, 0.1, 0.5, 0.9, 1.0))
    assert told.reliability == 1


def test_little_is_told_of_few_specs_or_of_one_seed():
    assert telling(drawn(0.2, 0.05, specs=9)) is None
    assert telling({f"s{i}": [i / 10] for i in range(20)}) is None


def test_a_leaderboard_tells_of_its_tasks():
    entries = [
        Entry(f"s{i}", Look("x", "affine", 1, 1, 1.0, None),
              tuple(Run(task, seed, s, s, 1.0, 0.1, ()) for task, s in
                    (("mqar", i / 10), ("recall", 1.0)) for seed in (0, 1)))
        for i in range(10)
    ]  # fmt: skip
    told = tell_tasks(["mqar", "recall"], entries)
    assert {task: one.fault for task, one in told.items()} == {
        "mqar": "", "recall": "nearly all solve it",
    }  # fmt: skip
