"""What was measured of a system, read from the tables of the guides."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Measured(NamedTuple):
    """One row of a table: the page that it stands on, and its cells with their headings."""

    page: str
    cells: tuple[tuple[str, str], ...]
    changed: bool
    """Whether the spec has changed since."""


def measured(name: str, docs: Path) -> list[Measured]:
    """Return the rows about a spec in the leaderboard and among the measurements."""
    pages = [docs / "leaderboard.md", docs / "measured.md"]
    return [row for page in pages if page.is_file() for row in _rows(page, name)]


def _rows(page: Path, name: str) -> Iterator[Measured]:
    heading: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            heading = []
        elif not heading:
            heading = cells
        elif "spec" in heading and cells[heading.index("spec")].rstrip(" *") == name:
            changed = cells[heading.index("spec")].endswith("*")
            told = zip(heading, cells, strict=False)
            shown = tuple((h or "place", c) for h, c in told if c and h != "spec")
            yield Measured(page.stem, shown, changed)
