"""The page on parallel forms: its checks hold, and the modules that it names are there.

The functions too: see ``test_contributor_pages.py``.
"""

import doctest
import re
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "parallel.md"


def test_its_checks_hold() -> None:
    before = torch.get_default_dtype()
    try:
        found = doctest.testfile(str(PAGE), module_relative=False)
    finally:
        torch.set_default_dtype(before)
    assert found.attempted > 25
    assert found.failed == 0


def test_its_modules_are_there() -> None:
    names = re.findall(r"`(mnemic/[\w/.]+)(?:::\w+)?`", PAGE.read_text(encoding="utf-8"))
    assert len(names) > 8
    assert [name for name in names if not (ROOT / name).exists()] == []
