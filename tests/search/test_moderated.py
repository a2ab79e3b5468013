"""Variances told from many small samples together, beside what was drawn and beside a fit."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from mnemic.search.report.ablation import _p_value
from mnemic.search.report.moderated import FEWEST, Spread, _prior, spreads


def drawn(degrees: float, common: float, n: int, seeds: int, seed: int = 0):
    chance = np.random.default_rng(seed)
    true = common * degrees / chance.chisquare(degrees, n)
    samples = {str(i): list(chance.normal(0.0, v**0.5, seeds)) for i, v in enumerate(true)}
    return samples, true


@pytest.mark.parametrize(("degrees", "seeds"), [(2.5, 3), (8.0, 3), (4.0, 6)])
def test_the_prior_is_the_one_that_was_drawn_from(degrees, seeds):
    """And near the fit by likelihood: s²/s₀² has an F distribution of d and d₀ degrees."""
    samples, _ = drawn(degrees, 0.04, 4000, seeds)
    own = [Spread(float(np.var(x, ddof=1)), seeds - 1) for x in samples.values()]
    found, common = _prior(own)
    assert found == pytest.approx(degrees, rel=0.25)
    assert common == pytest.approx(0.04, rel=0.1)
    values = np.array([one.variance for one in own])

    def unlikely(point):
        scale = math.exp(point[1])
        return -stats.f.logpdf(values / scale, seeds - 1, math.exp(point[0])).sum() + len(
            values
        ) * math.log(scale)

    fit = optimize.minimize(unlikely, [0.0, 0.0], method="Nelder-Mead").x
    assert found == pytest.approx(math.exp(fit[0]), rel=0.25)
    assert common == pytest.approx(math.exp(fit[1]), rel=0.05)


def test_a_variance_drawn_to_the_others_is_nearer_to_the_true_one():
    samples, true = drawn(4.0, 0.04, 300, 3)
    found = spreads(samples)
    own = np.array([np.var(x, ddof=1) for x in samples.values()])
    told = np.array([found[name].variance for name in samples])
    apart = [np.abs(np.log(x / true)).mean() for x in (told, own)]
    assert apart[0] < 0.7 * apart[1]
    assert {one.degrees for one in found.values()} == {found["0"].degrees}
    assert found["0"].degrees > 4


def test_alike_variances_are_one():
    chance = np.random.default_rng(1)
    samples = {str(i): list(chance.normal(0, 0.1, 3)) for i in range(200)}
    found = spreads(samples)
    assert found["0"].variance == pytest.approx(0.01, rel=0.15)
    assert found["0"].degrees > 100


def test_few_samples_and_short_ones_keep_what_they_have():
    samples = {str(i): [0.0, 0.1 * (i + 1)] for i in range(FEWEST - 1)}
    assert spreads(samples)["1"] == Spread(pytest.approx(0.02), 1)
    assert spreads({"a": [1.0], "b": [1.0, 1.0]}) == {"b": Spread(0.0, 1)}
    alike = {str(i): [0.5, 0.5, 0.5] for i in range(30)}
    assert spreads(alike)["3"] == Spread(0.0, 2)
    assert spreads(alike | {"x": [0.1, 0.2, 0.3]})["3"].variance > 0


def test_differences_are_judged_by_that_variance():
    assert _p_value([0.1, 0.1], None) == 1.0
    assert _p_value([0.1, 0.1], Spread(0.0, 1)) == 0.0
    assert _p_value([0.0, 0.0], Spread(0.0, 1)) == 1.0
    apart = [0.1, 0.3, 0.2]
    plain = stats.ttest_1samp(apart, 0.0).pvalue
    assert _p_value(apart, Spread(float(np.var(apart, ddof=1)), 2)) == pytest.approx(plain)
