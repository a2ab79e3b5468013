"""The tutorial, from its first block to its last, in an empty folder."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mnemic.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def _run(command: str) -> str:
    program, *words = shlex.split(command)
    assert program == "mnemic"
    done = CliRunner().invoke(app, words, prog_name="mnemic", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_every_block_of_the_tutorial_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed, known = "", dict[str, object]()
    for kind, text in BLOCKS:
        match kind:
            case "yaml":
                name = re.match(r"# (\S+)\n", text)
                assert name, text
                Path(name[1]).write_text(text, encoding="utf-8")
            case "sh":
                printed = "".join(map(_run, text.splitlines()))
            case "text":
                assert [line for line in text.splitlines() if line.strip() not in printed] == []
            case "python":
                exec(compile(text, f"{PAGE.name}", "exec"), known)
            case _:
                raise AssertionError(f"no test runs a block of {kind}")
    assert {kind for kind, _ in BLOCKS} == {"yaml", "sh", "text", "python"}
