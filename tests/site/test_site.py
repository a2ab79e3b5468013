"""A site of three systems: links, formulas, what a user's text may do, and folders."""

import re
from pathlib import Path

import pytest
from pages import Page, broken
from typer.testing import CliRunner

from mnemic.cli.app import app

SYSTEMS = ("deltanet", "gated-deltanet", "hostile")


def _run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["site", *words], prog_name="mnemic")
    return done.exit_code, done.output


def test_every_link_leads_to_a_file_and_a_place_in_it(built: Path) -> None:
    assert broken(built) == []


def test_a_broken_link_would_be_seen(tmp_path: Path) -> None:
    """The check above can fail: a file, a place and a script from elsewhere that are not there."""
    (tmp_path / "a.html").write_text(
        '<a href="b.html">x</a><a href="#y">y</a><script src="https://x.org/z.js"></script>'
    )
    assert len(broken(tmp_path)) == 3


def test_formulas_are_mathml_and_no_latex_is_left(built: Path) -> None:
    for name in ("deltanet", "gated-deltanet"):
        page = Page(built / f"systems/{name}.html")
        assert "math" in page.tags
        assert re.findall(r"\\[a-zA-Z]+|\$[^$\n]+\$", page.prose) == []


def test_a_title_is_shown_and_not_obeyed(built: Path) -> None:
    page = Page(built / "systems/hostile.html")
    text = page.path.read_text(encoding="utf-8")
    title = '<script>alert("t")</script> **bold** $x_1$ {{ 7*7 }} [a](b.md) | `c` ::: \\alpha'
    assert title in page.prose
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "evil" not in page.ids
    for path in ("systems/index.html", "search.html", "map.html"):
        assert "<script>alert" not in (built / path).read_text(encoding="utf-8")


def test_a_page_says_what_the_compiler_does(built: Path) -> None:
    """Rule, code, relatives, audit and results of a system stand on its page."""
    prose = Page(built / "systems/gated-deltanet.html").prose
    text = (built / "systems/gated-deltanet.html").read_text(encoding="utf-8")
    assert {f'id="{place}"' for place in ("rule", "code", "relatives", "audit", "results")} <= set(
        re.findall(r'id="[^"]+"', text)
    )
    assert "deltanet is a special case of gated-deltanet: α = 1" in " ".join(prose.split())
    assert "test-time-regression (41)" in prose
    assert "mean skill" in prose
    assert 'class="k">def</span>' in text


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_table_and_the_map_lead_to_each_system(built: Path, name: str) -> None:
    assert f"{name}.html" in Page(built / "systems/index.html").links
    assert f"systems/{name}.html" in Page(built / "map.html").links


def test_a_folder_that_is_not_ours_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    code, said = _run("deltanet", "-o", str(tmp_path))
    assert code == 2
    assert "holds files that mnemic did not write" in said
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_unknown_spec_leaves_no_folder(tmp_path: Path) -> None:
    code, said = _run("deltanett", "-o", str(tmp_path / "site"))
    assert code == 2
    assert "did you mean 'deltanet'" in said
    assert not (tmp_path / "site").exists()


@pytest.mark.full
def test_an_older_site_is_replaced_whole(built: Path) -> None:
    """What a page of the older site left behind goes with it."""
    (built / "systems/stale.html").write_text("old")
    code, said = _run("deltanet", "-o", str(built))
    assert code == 0, said
    assert not (built / "systems/stale.html").exists()
    assert (built / "systems/deltanet.html").is_file()
