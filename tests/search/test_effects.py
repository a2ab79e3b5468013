"""Effects of axes and Pareto fronts, over points whose answers are known."""

from __future__ import annotations

import random
import re
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from mnemic.dsl.load import load
from mnemic.dsl.writing import short
from mnemic.errors import UsageError
from mnemic.models.files import write_json
from mnemic.search.report import effects as module
from mnemic.search.report.comparable import described, together
from mnemic.search.report.effects import NAMES, Effects, effects, levels
from mnemic.search.report.effects_page import crossed, forest, page
from mnemic.search.report.entries import stored
from mnemic.search.report.leaderboard import key_of
from mnemic.search.report.pareto import fronts, overall
from mnemic.search.report.pareto import page as fronts_page
from mnemic.search.report.points import BOARD, Measured, Point, measured_in, read_settings
from mnemic.search.space.space import load_space
from mnemic.search.study.training import Run
from mnemic.search.tasks import get

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"
LOSSES = {"dot": 0.0, "l2": 0.3, "lp": 0.1}
RATES = {"token": 0.0, "learned": 0.05}
WINDOWS = {1: 0.0, 4: 0.02}


def point(loss: str, rate: str, window: int, skills: list[float], **told: Any) -> Point:
    bias: Any = {"kind": "lp", "p": 3} if loss == "lp" else loss
    spec = load({"name": "x", "bias": bias, "optimizer": {"rate": rate}, "window": window})
    runs = tuple(Run("mqar", i, s, s, 1.0, 0.1, ((8, s),)) for i, s in enumerate(skills))
    costs = {"state_bytes": 1.0, "flops": 1.0, "step_seconds": 1.0, **told}
    return Point(f"{loss}-{rate}-{window}", spec, runs, costs)


def grid(extra: float = 0.0, seeds: int = 2) -> list[Point]:
    """Every combination; ``extra`` is gained where l2 meets a learned rate."""
    return [
        point(loss, rate, window, [LOSSES[loss] + RATES[rate] + WINDOWS[window]
                                   + extra * (loss == "l2" and rate == "learned")
                                   + 0.1 * seed for seed in range(seeds)])
        for loss, rate, window in product(LOSSES, RATES, WINDOWS)
    ]  # fmt: skip


def of(found: Effects, axis: str) -> dict[tuple[str, str], Any]:
    return {(one.level, one.reference): one for one in found.main if one.axis == axis}


def test_a_level_is_what_a_point_has_without_the_numbers_of_a_range():
    found = dict(zip(NAMES, levels(point("lp", "token", 4, [0.1])), strict=True))
    assert (found["loss"], found["window"], found["rate"]) == ("lp", "4", "token")
    assert found["block"] == "default"
    narrow = load({"name": "x", "bias": {"kind": "huber", "delta": 0.2}})
    wide = load({"name": "x", "bias": {"kind": "huber", "delta": 5, "over": "norm"}})
    near = load({"name": "x", "bias": {"kind": "huber", "delta": 0.3}})
    kinds = [levels(Point("x", spec, (), {}))[0] for spec in (narrow, wide, near)]
    assert kinds[0] == kinds[2] != kinds[1]


def test_main_effects_are_what_was_put_in():
    found = effects(grid(), random=False)
    losses = of(found, "loss")
    reference = next(iter(losses))[1]
    for (level, _), one in losses.items():
        assert one.size.mean == pytest.approx(LOSSES[level] - LOSSES[reference])
        assert one.pairs == 4
    assert {one.axis for one in found.main} == {"loss", "rate", "window"}
    assert all(one.size.mean == pytest.approx(0, abs=1e-12) for one in found.interactions)
    assert any(line.startswith("features: every point has identity") for line in found.unknown)


def test_an_interaction_is_found_and_told_from_main_effects():
    found = effects(grid(extra=0.2), random=False)
    largest = found.interactions[0]
    assert largest.axes == ("loss", "rate")
    assert abs(largest.size.mean) == pytest.approx(0.2)
    assert largest.squares == 2
    small = [one for one in found.interactions if "window" in one.axes]
    assert all(abs(one.size.mean) == pytest.approx(0, abs=1e-12) for one in small)


def test_each_square_is_told_once():
    """Not a second time from the other end of an axis, which says the same with the other sign."""
    found = effects(grid(extra=0.2), random=False)
    told = [(*one.axes, *(frozenset(change.split(" → ")) for change in one.changes))
            for one in found.interactions]  # fmt: skip
    assert len(told) == len(set(told))
    pairs = sorted(one.axes for one in found.interactions)
    assert pairs == [("loss", "rate")] * 3 + [("loss", "window")] * 3 + [("window", "rate")]


def test_intervals_are_over_pairs():
    chance = random.Random(3)
    points = [
        point(loss, rate, window, [LOSSES[loss] + chance.gauss(0, 0.05)])
        for loss, rate, window in product(("dot", "l2"), RATES, WINDOWS)
    ]
    (one,) = of(effects(points, random=False), "loss").values()
    by = {(p.name.split("-")[0], p.name.partition("-")[2]): p.skill for p in points}
    rest = {name.partition("-")[2] for name in (p.name for p in points)}
    apart = [by[one.level, r] - by[one.reference, r] for r in sorted(rest)]
    low, high = stats.t.interval(0.95, 3, loc=one.size.mean, scale=stats.sem(apart))
    assert one.size.mean == pytest.approx(sum(apart) / 4)
    assert (one.size.low, one.size.high) == (pytest.approx(low), pytest.approx(high))


def test_what_the_data_cannot_tell_is_told():
    """dot and l2 differ in their rates as well: no pair shows what the loss does."""
    points = [point("dot", "token", 1, [0.1]), point("l2", "learned", 1, [0.9])]
    found = effects(points, random=False)
    assert found.main == ()
    assert any("loss: no matched pair" in line for line in found.unknown)
    assert any("interactions: no four points" in line for line in found.unknown)
    pair = effects([*points, point("dot", "learned", 1, [0.2])], random=False)
    assert any("loss: one pair on one seed, without an interval" in x for x in pair.unknown)
    assert not any(one.sure for one in pair.main)


def test_points_in_other_blocks_are_no_pairs():
    one, other = point("dot", "token", 1, [0.1]), point("l2", "token", 1, [0.9])
    block = load({"name": "b", "block": {"convolution": 0}}).block
    apart = Point("a", other.spec.model_copy(update={"block": block}), other.runs, other.costs)
    assert effects([one, other], random=False).main
    assert effects([one, apart], random=False).main == ()


def test_importance_is_told_for_what_was_drawn_and_finds_the_axis_that_matters():
    assert effects(grid(), random=False).importance == {}
    shares = effects(grid(), random=True).importance
    assert max(shares, key=lambda name: shares[name]) == "loss"
    assert set(shares) == {"loss", "rate", "window"}
    few = grid()[: module.FEWEST - 1]
    assert effects(few, random=True).importance == {}


def test_the_page_and_its_pictures():
    found = effects(grid(extra=0.2), random=True)
    points = grid(extra=0.2)
    text = page(found, ["runs/x"], ["effects.svg"], described(points))
    steps = points[0].runs[0].curve[-1][0] if points[0].runs[0].curve else 0
    assert f"points in runs/x, trained on {points[0].runs[0].task} ({steps} steps). An" in text
    fronts_told = fronts_page(points, ["runs/x"])
    assert f"mean skill over {points[0].runs[0].task} ({steps} steps)" in fronts_told
    assert "![effects](effects.svg)" in text
    assert "| loss | rate |" in text
    assert "features: every point has identity" in text
    for drawn in (forest(found), crossed(found)):
        assert drawn.startswith("<svg")
        assert "loss" in drawn


@pytest.mark.parametrize("seed", range(5))
def test_nobody_on_a_front_is_beaten_and_everybody_else_is(seed):
    chance = random.Random(seed)
    points = [
        point("dot", "token", 1, [chance.random()], state_bytes=chance.randint(1, 5),
              flops=chance.random(), step_seconds=chance.random())
        for _ in range(30)
    ]  # fmt: skip
    for front in fronts(points):
        on = {id(one) for one in front.points}
        for one in points:
            beaten = any(
                o.skill >= one.skill and o.costs[front.cost] <= one.costs[front.cost]
                and (o.skill, o.costs[front.cost]) != (one.skill, one.costs[front.cost])
                for o in points
            )  # fmt: skip
            assert (id(one) in on) != beaten
    every = {id(one) for one in overall(points)}
    assert all(id(one) in every for front in fronts(points) for one in front.points)
    assert "## Against all three" in fronts_page(points, ["x"])


def board(path, names=("deltanet", "gla")) -> None:
    kept = {
        name: {"key": "", "spec": short(load(name)), "look": {
            "identity": name, "kind": "affine", "parameters": 1, "state_bytes": 1, "flops": 1.0,
            "error": None}, "runs": [asdict(Run("mqar", 0, 0.5, 0.5, 1.0, 0.1, ((8, 0.5),)))],
            "over": [], "why": "", "failed": {} if name != "gla" else {"swaps": "time"}}
        for name in names
    }  # fmt: skip
    write_json(path, kept)


def test_points_of_a_leaderboard(tmp_path):
    board(tmp_path / "leaderboard.json")
    found = measured_in(str(tmp_path))
    assert (found.kind, [p.name for p in found.points]) == (BOARD, ["deltanet"])
    assert found.missing == {"gla": "time"}
    assert measured_in(str(tmp_path / "leaderboard.json")).points == found.points


def test_places_that_hold_nothing_are_refused(tmp_path):
    with pytest.raises(UsageError, match="neither the folder of a leaderboard"):
        measured_in(str(tmp_path))
    (tmp_path / "leaderboard.json").write_text("[1]")
    with pytest.raises(UsageError, match="not a results file of mnemic leaderboard"):
        measured_in(str(tmp_path))
    board(tmp_path / "leaderboard.json", ("gla",))
    with pytest.raises(UsageError, match="nothing there was measured on every task"):
        measured_in(str(tmp_path))
    mistyped = tmp_path / "study.db"
    with pytest.raises(UsageError, match="no such file"):
        measured_in(f"sqlite:///{mistyped}")
    assert not mistyped.exists()


def test_skills_of_other_tasks_are_not_compared():
    one, other = grid()[:1], grid()[:1]
    runs = tuple(Run("swaps", r.seed, r.score, r.skill, 1.0, 0.1, r.curve) for r in one[0].runs)
    swapped = Point("s", one[0].spec, runs, one[0].costs)
    places = [Measured(BOARD, "a", tuple(other), {}), Measured(BOARD, "b", (swapped,), {})]
    with pytest.raises(UsageError, match=r"b: trained on swaps \(8 steps\), and a on mqar"):
        together(places)


SMALL = (
    "tasks.mqar.vocabulary (256, not 64), tasks.mqar.pairs (8, not 4), "
    "tasks.mqar.length (64, not 24)"
)


def place(where: str, **told: Any) -> Measured:
    """A place of the points of ``grid``; what is told differs from the others' settings."""
    search = {"tasks": {"mqar": "tiny"}, "rungs": [{"steps": 8}], **told}
    space = load_space({"mnemic": 1, "name": "s", "search": search})
    trained = read_settings(space.identity["search"], 0)
    return Measured(BOARD, where, tuple(grid()), {}, trained)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"tasks": {"mqar": "small"}}, SMALL),
        ({"rungs": [{"steps": 8, "sizes": {"mqar": "small"}}]}, SMALL),
        (
            {"tasks": {"mqar": {"rung": "tiny", "options": {"pairs": 3}}}},
            "tasks.mqar.pairs (3, not 4)",
        ),
        ({"model": {"dim": 128}}, "model.dim (128, not 64)"),
        ({"training": {"lr": 0.01}}, "training.lr (0.01, not 0.003)"),
        ({"rates": [0.01, 0.02]}, "rates ([0.01, 0.02], not [])"),
    ],
    ids=lambda told: next(iter(told)) if isinstance(told, dict) else "",
)
def test_skills_that_were_trained_otherwise_are_not_compared(told, said):
    with pytest.raises(UsageError, match=re.escape(f"b: differs from a in {said}: their")):
        together([place("a"), place("b", **told)])


def test_a_point_that_two_places_hold_is_one():
    assert len(together([place("a"), place("b")])) == len(grid())


def test_a_file_that_stands_alone_is_compared_with_no_other(tmp_path):
    board(tmp_path / "leaderboard.json", ("deltanet",))
    found = measured_in(str(tmp_path))
    assert together([found])
    with pytest.raises(UsageError, match="is not kept beside it"):
        together([found, found])


def test_what_was_measured_under_other_settings_is_no_point(tmp_path):
    """A leaderboard's tasks may change; what was not measured anew stays in its file."""
    board(tmp_path / "leaderboard.json", ("deltanet", "linear-attention"))
    search = {"tasks": {"mqar": "tiny"}, "rungs": [{"steps": 8}]}
    space = load_space({"mnemic": 1, "name": "s", "search": search})
    settings = space.identity["search"]
    write_json(tmp_path / "spaces.json", {"leaderboard.json": {"search": settings}})
    kept = stored(tmp_path / "leaderboard.json")
    kept["deltanet"]["key"] = key_of(load("deltanet"), settings)
    write_json(tmp_path / "leaderboard.json", kept)
    found = measured_in(str(tmp_path))
    assert [one.name for one in found.points] == ["deltanet"]
    assert "other settings" in found.missing["linear-attention"]


@pytest.mark.parametrize("text", ["{", "[1]", '{"leaderboard.json": {"search": {}}}'])
def test_settings_that_cannot_be_read_are_told(tmp_path, text):
    board(tmp_path / "leaderboard.json", ("deltanet",))
    (tmp_path / "spaces.json").write_text(text)
    with pytest.raises(UsageError, match=r"spaces\.json: not settings of mnemic leaderboard"):
        measured_in(str(tmp_path))


def test_an_option_that_says_what_the_size_has_changes_nothing():
    told = {"mqar": {"rung": "tiny", "options": {"pairs": 4}}}
    assert together([place("a"), place("b", tasks=told)])


def test_a_task_that_is_not_known_here_is_compared_as_it_was_written():
    def read(**told: Any) -> Any:
        search = {
            "tasks": {"gone": {"rung": None, "options": {}, **told}},
            "rungs": [{"sizes": {}}], "model": {}, "training": {},
        }  # fmt: skip
        return read_settings(search, 0)["tasks"]["gone"]

    assert read() == read(rung="published") == {"rung": "published"}
    assert read(rung="tiny", options={"pairs": 4}) == {"rung": "tiny", "pairs": 4}
    assert read(digest="1") != read(digest="2") != read()


def test_a_size_that_is_not_told_is_the_published_one():
    assert together([place("a", tasks={"mqar": {}}), place("b", tasks={"mqar": "published"})])


def test_what_leaderboards_and_searches_were_trained_with_is_read():
    """Of the kept ones, as their spaces say it."""
    for name in ("wide", "axes"):
        space = load_space(EXAMPLES / f"{name}.yaml")
        found = measured_in(str(EXAMPLES / name))
        assert found.trained is not None
        assert found.trained["model"] == space.identity["search"]["model"]
        assert found.trained["training"]["lr"] == 0.01
        sizes = {task: get(task).configure(told.options, told.rung).options
                 for task, told in space.settings.tasks.items()}  # fmt: skip
        assert found.trained["tasks"] == {task: asdict(told) for task, told in sizes.items()}
