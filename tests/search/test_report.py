"""What a report says of choices that not every point has."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from optuna.trial import TrialState

from mnemic.search.report.importance import FEWEST, explained
from mnemic.search.report.parallel import draw, parallel
from mnemic.search.space.space import Space, load_space
from mnemic.search.study.records import Record

DELTA = "bias=huber.delta"
SPACE: dict[str, Any] = {
    "mnemic": 1,
    "name": "losses",
    "bias": {
        "choose": ["dot", "l2", {"kind": "huber", "delta": {"range": [0.1, 10], "log": True}}]
    },
    "optimizer": {"rate": {"choose": ["token", "learned"]}},
    "search": {"tasks": {"mqar": "tiny"}},
}
SKILLS = {"dot": 0.1, "l2": 0.5, "huber": 0.7}


@pytest.fixture(scope="module")
def space() -> Space:
    return load_space(SPACE)


def points(count: int, seed: int, slope: float = 0.0) -> list[tuple[Record, float]]:
    """Points whose skill hangs on the loss, and by ``slope`` on log δ where there is one."""
    chance, found = random.Random(seed), []
    for number in range(count):
        loss, power = chance.choice(list(SKILLS)), chance.uniform(-1, 1)
        answers = {"bias": loss, "optimizer.rate": chance.choice(["token", "learned"])}
        answers |= {DELTA: 10**power} if loss == "huber" else {}
        skill = SKILLS[loss] + chance.gauss(0, 0.02) + slope * power * (DELTA in answers)
        found.append((Record(number, "finished", TrialState.COMPLETE, answers, {}, None), skill))
    return found


@pytest.mark.parametrize("count", [FEWEST, 20, 40, 100])
@pytest.mark.parametrize("seed", range(10))
def test_a_choice_of_few_points_that_does_nothing_is_not_important(
    space: Space, count: int, seed: int
) -> None:
    shares = explained(space.choices, points(count, seed))
    assert next(iter(shares)) == "bias"
    assert shares["bias"] > 0.9
    assert shares.get(DELTA, 0.0) < 0.01
    assert (DELTA in shares) == (sum(DELTA in one.answers for one, _ in points(count, seed)) >= 10)


def test_a_choice_inside_an_option_that_matters_is_found(space: Space) -> None:
    shares = explained(space.choices, points(200, 0, slope=0.6))
    assert shares[DELTA] > 0.3
    assert sum(shares.values()) < 1.1


def test_shares_are_of_variance() -> None:
    """Without noise, two answers alike in number explain all, and nothing is left over."""
    space = load_space({**SPACE, "bias": {"choose": ["dot", "l2"]}})
    answers = [{"bias": loss, "optimizer.rate": "token"} for loss in ("dot", "l2") * 10]
    found = [
        (Record(i, "finished", TrialState.COMPLETE, one, {}, None), SKILLS[one["bias"]])
        for i, one in enumerate(answers)
    ]
    assert explained(space.choices, found) == {"bias": pytest.approx(1.0)}


def test_lines_pass_below_the_axes_of_choices_that_points_do_not_have(space: Space) -> None:
    found = points(30, 3)
    (axis,) = draw(space, found).axes
    asked = [name for name in space.choices if any(name in one.answers for one, _ in found)]
    lines = {line.get_gid(): line.get_ydata() for line in axis.lines}
    assert len(lines) == 30
    for one, _ in found:
        *heights, share = lines[f"trial-{one.number}"]
        assert [y < 0 for y in heights] == [name not in one.answers for name in asked]
        assert 0 <= share <= 1
    assert [text.get_text() for text in axis.texts].count("not asked") == 1


def test_each_line_of_the_picture_is_told(space: Space) -> None:
    found = points(30, 3)
    picture = parallel(space, found)
    told = dict(
        re.findall(r'<g id="trial-(\d+)" class="trial"><title>trial \1: skill (.*?);', picture)
    )
    assert told == {str(one.number): f"{skill:.3f}" for one, skill in found}
    assert picture == parallel(space, found)


def test_a_choice_that_nothing_was_asked_has_no_importance(space: Space) -> None:
    plain = [(one, skill) for one, skill in points(60, 1) if DELTA not in one.answers]
    assert set(explained(space.choices, plain)) == {"bias", "optimizer.rate"}
    assert explained(space.choices, []) == {}
