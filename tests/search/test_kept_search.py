"""The search kept under examples: its storage opens, and says what the page and the specs say."""

import json
import shutil
from pathlib import Path

import pytest

from mnemic.dsl.load import load
from mnemic.search.report.write import write
from mnemic.search.space.space import load_space
from mnemic.search.study.search import open_search

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    """What a report written anew from a copy says."""
    run = tmp_path_factory.mktemp("kept") / "recall"
    shutil.copytree(EXAMPLES / "recall", run)
    space = load_space(str(EXAMPLES / "recall.yaml"))
    search = open_search(space, run, tell=lambda line: None)
    try:
        return write(search)
    finally:
        search.close()


def test_the_page_that_is_kept_says_the_same(summary):
    page = (EXAMPLES / "recall" / "report.html").read_text(encoding="utf-8")
    assert summary.verdict.startswith("on fresh seeds, recall-80907e7a wins")
    assert "above all 5 made by hand: recall-80907e7a" in summary.verdict
    assert summary.verdict in page


def test_the_specs_that_are_kept_are_the_best(summary):
    kept = sorted((EXAMPLES / "recall" / "best").glob("*.yaml"))
    names = [point.spec.name for point in summary.best]
    assert [load(str(path)).name for path in kept] == names[: len(kept)]


def test_every_fresh_seed_of_the_winner_is_above_every_one_of_the_others(summary):
    kept = json.loads((EXAMPLES / "recall" / "confirmed.json").read_text(encoding="utf-8"))
    means = {}
    for one in kept["confirmed"]:
        seeds = {}
        for run in one["runs"]:
            seeds.setdefault(run["seed"], []).append(run["skill"])
        assert len(seeds) == 5
        assert all(len(skills) == 4 for skills in seeds.values())
        means[one["name"]] = [sum(skills) / 4 for skills in seeds.values()]
    winner = means.pop("recall-80907e7a")
    assert min(winner) > max(max(found) for found in means.values())
