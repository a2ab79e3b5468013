"""The page of models: its examples run, and its sizes are those that there are."""

import doctest
import re
from pathlib import Path

from mnemic.hf.shape import SIZES

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_its_examples_run(tmp_path: Path) -> None:
    import mnemic.hf  # registers the classes  # noqa: F401

    found = doctest.testfile(
        str(PAGE), module_relative=False, globs={"tmp_path": tmp_path},
        optionflags=doctest.ELLIPSIS,
    )  # fmt: skip
    assert found.attempted > 25
    assert found.failed == 0


def test_its_sizes_are_the_papers() -> None:
    rows = re.findall(r"^\| ([\d.]+[MB]) \| (\d+) \| ([\d,]+) \| (\d+) \|", PAGE.read_text(), re.M)
    told = {name: (int(b), int(d.replace(",", "")), int(h)) for name, b, d, h in rows}
    assert told == {name: (s.blocks, s.dim, s.heads) for name, s in SIZES.items()}
