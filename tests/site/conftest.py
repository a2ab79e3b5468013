"""A site of three systems, one of them hostile."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

HOSTILE = """\
mnemic: 1
name: hostile
title: '<script>alert("t")</script> **bold** $x_1$ {{ 7*7 }} [a](b.md) | `c` ::: \\alpha'
source: {paper: '<img src=x onerror=alert("p")> | {math}`\\beta` (2026), Evil', where: '</pre>'}
bias: {expr: e**2}
optimizer: {rate: token}
notes: "```\\n# heading\\n```{raw} html\\n<b id=evil>\\n```"
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    pytest.importorskip("furo", reason="a site needs the extra docs")
    from mnemic.cli.app import app

    place = tmp_path_factory.mktemp("site")
    own = place / "hostile.yaml"
    own.write_text(HOSTILE, encoding="utf-8")
    words = ["site", "deltanet", "gated-deltanet", str(own), "-o", str(place / "site")]
    done = CliRunner().invoke(app, words, prog_name="mnemic", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "warning" not in done.output
    return place / "site"


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site of all packaged systems."""
    pytest.importorskip("furo", reason="a site needs the extra docs")
    from mnemic.cli.app import app

    folder = tmp_path_factory.mktemp("whole") / "site"
    done = CliRunner().invoke(app, ["site", "-o", str(folder)], prog_name="mnemic")
    assert done.exit_code == 0, done.output
    assert "warning" not in done.output
    return folder
