"""What a release says of itself: its version, and what it does not do."""

import re
from pathlib import Path
from typing import Any

import pytest

import mnemic
from mnemic.compiler.explain.explanation import approximations
from mnemic.pipeline import derive

ROOT = Path(__file__).parents[1]
LIMITS = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def part(page: str, heading: str) -> str:
    """Return what stands under a heading of a page."""
    return page.partition(f"## {heading}")[2].partition("\n## ")[0]


def test_the_newest_notes_are_of_this_version() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.+)"$', project, re.MULTILINE)
    (first, *_) = re.findall(r"^## (\S+)", CHANGES, re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert first == version
    assert f"\nversion: {version}\n" in citation


def test_the_notes_begin_with_the_limits() -> None:
    newest = part(CHANGES, "0.1.0").split("\n- ")[0]
    assert "(docs/limits.md)" in newest
    for said in ("approximate", "fused kernels have run on one GPU", "not there"):
        assert said in newest
    for heading in ("What is approximate", "What has not been run", "What is not there"):
        assert part(LIMITS, heading).count("\n- ") >= 3


SMOOTHED = {"mnemic": 1, "name": "smoothed", "bias": {"kind": "lp", "p": 1, "smooth": 4}}
ROOT_OF = {"mnemic": 1, "name": "root", "bias": "l2",
           "retention": {"local": {"f-divergence": "x*log(x) + x**4"}, "constraint": "simplex"},
           "optimizer": {"rate": "token"}}  # fmt: skip


@pytest.mark.parametrize("spec", ["atlas", "cms", "performer", "based", "mesa",
                                  "local-linear-attention", SMOOTHED, ROOT_OF])  # fmt: skip
def test_what_a_derivation_calls_approximate_is_on_the_page(spec: Any) -> None:
    found = approximations(derive(mnemic.load(spec)))
    assert found
    page = " ".join(part(LIMITS, "What is approximate").lower().replace("*", "").split())
    for line in found:
        kind = re.split(r":| in | is ", line)[0].lower()
        assert kind.removeprefix("the ") in page, line
