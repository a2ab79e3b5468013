"""The site in a browser, at the widths of a desk and of a telephone."""

from pathlib import Path

import browser
import pytest
from pages import broken

WIDTHS = (1280, 390)
PICTURES = Path(__file__).parents[2] / "runs" / "screenshots"
"""Where screenshots are kept, for a person to look at."""

SEEN = (
    "index", "systems/index", "systems/gated-deltanet", "systems/titans", "map", "audit/index",
    "claims/index", "claims/switching", "claims/needles", "capacity",
)  # fmt: skip


@browser.needed
def test_nothing_is_wider_than_its_page_and_the_map_leads_on(built: Path) -> None:
    pages = ["index.html", "map.html", *(f"systems/{n}.html" for n in ("index", "gated-deltanet")),
             "claims/index.html", "claims/recall.html", "capacity.html"]  # fmt: skip
    click = 'svg a[href="systems/hostile.html"]'
    seen = browser.looked_at(built, pages, WIDTHS, [("map.html", click)])
    assert seen["wide"] == []
    assert seen["led"][click].startswith('<script>alert("t")</script> **bold**')


@browser.needed
def test_what_is_wider_than_its_page_would_be_seen(tmp_path: Path) -> None:
    """The check above can fail."""
    wide = "<article><p style='width: 2000px'>wide</p></article>"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "a.html").write_text(f"<!doctype html>{wide}")
    seen = browser.looked_at(tmp_path / "site", ["a.html"], (390,), [])
    assert len(seen["wide"]) == 2


@pytest.mark.full
@browser.needed
def test_no_page_of_the_whole_site_is_too_wide(whole: Path) -> None:
    """Every page of the site of all packaged systems; screenshots are kept under runs/."""
    assert broken(whole) == []
    pages = sorted(path.relative_to(whole).as_posix() for path in whole.rglob("*.html"))
    seen = browser.looked_at(whole, pages, WIDTHS, [])
    for page in SEEN:
        for width in WIDTHS:
            name = f"{page.replace('/', '-')}-{width}.png"
            browser.pictured(whole / f"{page}.html", width, PICTURES / name)
    assert seen["wide"] == []
