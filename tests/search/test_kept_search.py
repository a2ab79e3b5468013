"""The search kept under examples: its storage opens, and says what the page and the specs say."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from mnemic.dsl.load import load
from mnemic.search.report.write import write
from mnemic.search.space.space import load_space
from mnemic.search.study.search import open_search

sys.path.insert(0, str(Path(__file__).parents[1] / "site"))
import browser

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A copy of the search's folder."""
    return tmp_path_factory.mktemp("kept") / "recall"


@pytest.fixture(scope="module")
def summary(run):
    """What a report written anew from a copy says; its page, which takes long, is left out."""
    shutil.copytree(EXAMPLES / "recall", run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mnemic.search.report.page.page", lambda *_: "")
        return written(run)


def written(run):
    """Write the report, and return what it says."""
    space = load_space(str(EXAMPLES / "recall.yaml"))
    search = open_search(space, run, tell=lambda line: None)
    try:
        return write(search)
    finally:
        search.close()


def test_the_page_that_is_kept_says_the_same(summary):
    page = (EXAMPLES / "recall" / "report.html").read_text(encoding="utf-8")
    assert summary.verdict.startswith("on fresh seeds, recall-80907e7a wins")
    assert "above all 7 hand-written specs: recall-80907e7a" in summary.verdict
    assert summary.verdict in page


def test_the_specs_that_are_kept_are_the_best(summary):
    kept = sorted((EXAMPLES / "recall" / "best").glob("*.yaml"))
    names = [point.spec.name for point in summary.best]
    assert [load(str(path)).name for path in kept] == names[: len(kept)]


def test_the_readme_says_what_the_fresh_seeds_say(summary):
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    kept = json.loads((EXAMPLES / "recall" / "confirmed.json").read_text(encoding="utf-8"))
    assert len(kept["confirmed"]) == 9
    for one in kept["confirmed"]:
        seeds = {run["seed"] for run in one["runs"]}
        assert sorted(seeds) == list(range(1000, 1005)), "of a confirmation alone"
        assert len(one["runs"]) == 20
        assert f"| {one['name']} | {summary.confirmed[one['name']]} |" in text


@pytest.mark.full
@browser.needed
def test_the_page_fits_a_desk_and_a_telephone(summary, run):
    """Nothing is wider than the page, and what it shows is as large as a page is."""
    assert written(run).verdict == summary.verdict
    seen = browser.looked_at(run, ["report.html"], (1280, 390), [])
    assert seen["wide"] == []
    picture = run.parent / "report.png"
    browser.pictured(run / "report.html", 390, picture)
    assert picture.stat().st_size > 20_000
