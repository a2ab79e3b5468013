"""What `--help` shows as examples is so: all of them are read, and the quick ones are run."""

import re
import shlex

import pytest
from typer.main import get_command

from mnemic.cli.app import EXAMPLES, START, app

EVERY = [example for shown in EXAMPLES.values() for example in shown]
QUICK = ("new", "check", "derive", "compile", "diff", "list", "schema", "tasks", "doctor")
"""Commands that take seconds; tests of the others run them at small sizes."""


@pytest.mark.parametrize("example", [*EVERY, *re.findall(r"^  (mnemic .*?)  ", START, re.M)])
def test_an_example_is_understood(example):
    """Its command is there, and takes these options."""
    program, name, *arguments = shlex.split(example)[: _end(example)]
    assert program == "mnemic"
    command = get_command(app).commands[name]
    command.make_context(name, arguments)


def _end(example):
    """How many words come before the shell's own."""
    words = shlex.split(example)
    return words.index(">") if ">" in words else len(words)


@pytest.mark.parametrize("example", [e for e in EVERY if e.split()[1] in QUICK])
def test_an_example_runs(mnemic, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "theirs"):
        assert mnemic("new", name, "--yes").code == 0
    done = mnemic(*shlex.split(example)[1:])
    assert (done.code, done.err) == (0, ""), done.out


def test_a_page_of_a_terminal_has_room_for_what_to_try_first():
    assert max(map(len, START.splitlines())) <= 80
