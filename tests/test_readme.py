"""What the README and the examples show is so."""

import re
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

import mnemic
from mnemic.dsl.reading import read_yaml

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_spec_of_the_readme_derives_to_what_it_says() -> None:
    """The YAML block is a spec; the rule under it is the one that is derived."""
    from mnemic.compiler.explain.render import equations

    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.S)
    rule = mnemic.derive(read_yaml(text, "README.md").data)
    shown = re.findall(r"^\((\d)\) (.*?)\s*$", README, re.M)
    assert [(str(e.number), e.text) for e in equations(rule)] == shown
    assert rule.structure.kind == "residual"


def test_the_commands_of_the_readme_exist() -> None:
    """The two commands call scripts that are there, and the command knows the words."""
    assert (ROOT / "scripts/setup.sh").is_file()
    assert (ROOT / "scripts/check.sh").is_file()
    words = set(
        re.findall(r"mnemic (check|derive|compile|diff|train|tasks|bench|list|doctor)\b", README)
    )
    done = subprocess.run(
        [sys.executable, "-m", "mnemic", "--help"], capture_output=True, text=True, check=True
    )
    assert all(word in done.stdout for word in words)


SLOW = {"byte_model", "cut_sequence", "hybrid", "llama_memory"}
"""Examples that only the full tier runs."""


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.full] if path.stem in SLOW else [], id=path.stem)
        for path in sorted((ROOT / "examples").glob("*.py"))
    ],
)
def test_examples_run(path: Path) -> None:
    """Every script under examples/ runs."""
    subprocess.run([sys.executable, str(path)], check=True, capture_output=True)


def test_the_picture_shows_what_the_compiler_writes_now() -> None:
    """It is drawn from the spec, the derivation, the code and the kept curves."""
    drawing = run_path(str(ROOT / "scripts/picture.py"))
    assert drawing["PICTURE"].read_text(encoding="utf-8") == drawing["draw"](), (
        "write it anew: python scripts/picture.py"
    )
    assert f"]({drawing['PICTURE'].relative_to(ROOT)})" in README
