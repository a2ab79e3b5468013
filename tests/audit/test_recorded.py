"""The verdicts that come with the package are those that the judge finds."""

import json
from collections import Counter
from pathlib import Path

import pytest

from mnemic.audit import papers
from mnemic.audit.catalogue import chosen
from mnemic.audit.judge import judge
from mnemic.audit.recorded import FILE, about, describe_verdict, key

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


def kept() -> dict:
    return json.loads(FILE.read_text(encoding="utf-8"))


def test_every_line_has_a_verdict_and_no_other_is_kept() -> None:
    assert set(kept()) == {key(paper, line) for paper, line in chosen(())}


@pytest.mark.full
def test_the_kept_verdicts_are_the_judges(request: pytest.FixtureRequest) -> None:
    found = {}
    for paper, line in chosen(()):
        verdict = judge(paper, line)
        assert verdict.fails == (), line.where
        found[key(paper, line)] = {"verdict": verdict.kind, "change": verdict.change}
    if request.config.getoption("--regenerate"):
        FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    assert kept() == found


def test_the_counts_on_the_page_are_the_kept_ones() -> None:
    """Each paper's row of the table in docs/audit.md."""
    page = PAGE.read_text(encoding="utf-8")
    kinds = ("agrees", "agrees under", "differs", "no rule", "not judged")
    for paper in papers().values():
        counts = Counter(kept()[key(paper, line)]["verdict"] for line in paper.equations)
        row = " | ".join(str(counts[kind]) for kind in kinds)
        assert f"| {paper.id} | {row} |" in page


def test_each_line_that_differs_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for paper, line in chosen(()):
        if kept()[key(paper, line)]["verdict"] == "differs":
            assert f"| {paper.id} | {line.where.replace('|', chr(92) + '|')} |" in page, line.where


def test_a_specs_lines_as_text() -> None:
    lines = [describe_verdict(found) for found in about("longhorn")]
    assert "test-time-regression (31): agrees" in lines
    assert any(x.startswith("miras Table 1, Longhorn: differs: should be W = W") for x in lines)
    assert about("kda") == []
