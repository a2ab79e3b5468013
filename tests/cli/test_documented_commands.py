"""The commands in the documents' blocks of shell can be called as they are written."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed.run import parse_args
from typer.main import get_command

from mnemic.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
"""Pages that tell what to type; the CHANGELOG's lines are those of their release."""

OURS = re.compile(r"([A-Z_]+=\S* )*(python -m |torchrun .*)?mnemic ")
ENDS = {">", "|", "&", "&&", ";", "2>"}


def commands() -> Iterator[tuple[str, str]]:
    """Yield the page and every command that calls mnemic; a backslash joins two lines."""
    for page in PAGES:
        for block in re.findall(r"```(?:sh|shell|bash)\n(.*?)```", page.read_text("utf-8"), re.S):
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                if OURS.match(line):
                    yield page.name, line


def called(line: str) -> list[str]:
    """Return what mnemic is given; torchrun's own parser takes what is torchrun's."""
    words = shlex.split(line, comments=True)
    words = words[: next((i for i, word in enumerate(words) if word in ENDS), None)]
    while "=" in words[0]:
        words = words[1:]
    if words[0] == "torchrun":
        asked = parse_args(words[1:])  # type: ignore[no-untyped-call]
        assert asked.module, line
        words = [asked.training_script, *asked.training_script_args]
    return words[words.index("mnemic") + 1 :]


@pytest.mark.parametrize(("page", "line"), list(commands()))
def test_a_documented_command_is_understood(page: str, line: str) -> None:
    """Its command is there, and takes these options."""
    name, *arguments = called(line)
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    command.make_context(name, arguments)


def test_torchrun_takes_an_option_that_begins_as_one_of_its_own() -> None:
    """So lines with ``--run`` need ``--`` before the module; without it torchrun ends."""
    with pytest.raises(SystemExit):
        called("torchrun --nproc-per-node 2 -m mnemic train deltanet --run runs/it")
    line = "torchrun --nproc-per-node 2 -m -- mnemic train deltanet --run runs/it"
    assert called(line) == ["train", "deltanet", "--run", "runs/it"]
