"""On a terminal of any width no line is too long, and no word is cut or lost."""

import io

import pytest
from rich.console import Console
from terminal import on_terminal

from mnemic.cli.output import folded
from mnemic.cli.tasks import HEADINGS, _row, _table
from mnemic.search.tasks import find, memory_names, names

WRONG = "mnemic: 1\nname: mine\nbias: hubber\nretention: {decay: tokn}\nweights: geometric\n"


@pytest.mark.some(1)
@pytest.mark.parametrize("columns", [80, 200])
def test_long_lines_go_on_between_words(columns, mnemic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.yaml").write_text(WRONG)
    for arguments in (("check", "wrong.yaml"), ("check", "gated-deltanet"), ("tasks", "mqar")):
        shown, _ = on_terminal(columns, *arguments)
        plain = mnemic(*arguments)
        assert max(map(len, shown.splitlines())) <= columns
        assert shown.split() == (plain.out + plain.err).split()


@pytest.mark.parametrize("columns", [80, 100, 140, 200, 400])
def test_the_table_of_tasks_leaves_columns_out_and_cuts_no_word(columns):
    rows = [_row(find(name)()) for name in (*names(), *memory_names())]
    table, left = _table(rows, columns)
    page = Console(width=columns, file=io.StringIO())
    page.print(table)
    text = page.file.getvalue()
    assert {*text.splitlines()[0].split()} | {*left} == {*HEADINGS}
    assert "…" not in text
    words = [word for row in rows for word in f"{row['name']} {row['title']}".split()]
    assert {*words} <= {*text.split()}
    assert not left or columns < 200


def test_what_goes_on_stands_under_its_column():
    line = "  class        affine: as it is linear in the memory"
    assert folded(line, 45).splitlines() == [
        "  class        affine: as it is linear in the",
        "               memory",
    ]
    assert folded(line, 32).splitlines()[1:] == ["      linear in the memory"]
    assert folded("a word" + "y" * 40, 20).splitlines() == ["a", "    word" + "y" * 40]
    assert folded(line, None) == line
