"""From a system's name to its rule, code, relatives, audit, results, claims and capacity."""

import re
import shutil
from pathlib import Path

import pytest
from pages import Page, clicks, section

from mnemic.audit import recorded
from mnemic.capacity.recorded import of
from mnemic.claims import CLAIMS, about
from mnemic.claims.recorded import outcome
from mnemic.dsl.catalogue import names
from mnemic.pipeline import read
from mnemic.site.guides import ROOT
from mnemic.site.results import measured

ON_THE_PAGE = ("rule", "code", "relatives", "audit", "results", "claims", "capacity")


def unfound(site: Path, name: str) -> list[str]:
    """Return what of a packaged system lies more than two clicks from its name in the table."""
    if f"systems/{name}.html" not in clicks(site, "systems/index.html", 1):
        return [f"{name}: the table does not lead to it"]
    page = Page(site / f"systems/{name}.html")
    parts = {place: section(page, place) for place in ON_THE_PAGE}
    missing = [place for place, text in parts.items() if len(text) < 80]
    missing += ["a formula of the rule"] * ("<math" not in parts["rule"])
    missing += ["code"] * ("def</span>" not in parts["code"] and "No code is" not in parts["code"])
    needed = {f"audit/{line['paper']}.html" for line in recorded.about(name)}
    needed |= {f"claims/{claim.name}.html" for claim in about(name)}
    needed |= {f"docs/{row.page}.html" for row in measured(name, ROOT / "docs")}
    needed |= {"map.html"} | ({"capacity.html"} if "held" in (of(read(name)) or {}) else set())
    reached = clicks(site, f"systems/{name}.html", 1)
    return [f"{name}: {what}" for what in (*missing, *sorted(needed - set(reached)))]


@pytest.mark.parametrize("name", ["deltanet", "gated-deltanet"])
def test_all_of_a_system_is_two_clicks_from_its_name(built: Path, name: str) -> None:
    assert unfound(built, name) == []


def test_what_is_further_away_would_be_seen(built: Path, tmp_path: Path) -> None:
    """The check above can fail: a page whose links to claims are gone."""
    site = shutil.copytree(built, tmp_path / "site")
    page = site / "systems/deltanet.html"
    page.write_text(page.read_text(encoding="utf-8").replace("../claims/", "../away/"))
    assert {f"deltanet: claims/{claim.name}.html" for claim in about("deltanet")} <= set(
        unfound(site, "deltanet")
    )


def test_each_claim_has_a_page_with_verdict_figure_and_command(built: Path) -> None:
    listed = Page(built / "claims/index.html")
    for claim in CLAIMS:
        assert f"{claim.name}.html" in listed.own
        page = Page(built / f"claims/{claim.name}.html")
        text = page.path.read_text(encoding="utf-8")
        assert f"mnemic reproduce {claim.name}\n" in re.sub(r"<[^>]+>", "", text)
        found = outcome(claim.name)
        if found is not None:
            assert found.verdict.capitalize() in page.prose
            assert 'class="figure"' in text
            assert "svg" in page.tags


def test_a_memory_that_was_measured_stands_in_the_table_of_capacity(built: Path) -> None:
    found = of(read("deltanet"))
    assert found is not None
    assert "systems/deltanet.html#capacity" in Page(built / "capacity.html").own
    assert f"Holds {found['held']} random pairs in {found['dim']} channels" in " ".join(
        Page(built / "systems/deltanet.html").prose.split()
    )


@pytest.mark.full
def test_all_of_every_system_is_two_clicks_from_its_name(whole: Path) -> None:
    assert [line for name in names() for line in unfound(whole, name)] == []
