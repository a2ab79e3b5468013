"""The progress of a search: a live table on a terminal, a line a trial elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mnemic.cli.output import console, to_stderr

if TYPE_CHECKING:
    from rich.table import Table

    from mnemic.search.report.progress import Standing
    from mnemic.search.study.search import Search

LINES = 6
"""Trials that the table shows, the latest."""


@contextmanager
def followed(search: "Search") -> Iterator[None]:
    """Show a search's trials while it goes on, on standard error."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.live import Live

    shown = Shown(search)
    search.tell = shown.tell
    try:
        with Live(get_renderable=shown.table, console=console(stderr=True), refresh_per_second=1):
            yield
    finally:
        search.tell = to_stderr


class Shown:
    """A live table: what was done, how fast, how long it still takes, the best, the latest."""

    def __init__(self, search: "Search") -> None:
        from mnemic.search.report.progress import standing

        self.search, self.began = search, time.monotonic()
        self.first = self.now = standing(search.space, search.records())
        self.latest: list[str] = []

    def tell(self, line: str) -> None:
        """Take in a trial that is over."""
        from mnemic.search.report.progress import standing

        self.latest = [*self.latest, line][-LINES:]
        self.now = standing(self.search.space, self.search.records())

    def table(self) -> "Table":
        """Draw the table as of now."""
        return drawn(
            self.search.space.name, self.first, self.now, time.monotonic() - self.began, self.latest
        )


def drawn(
    name: str, first: "Standing", now: "Standing", seconds: float, latest: list[str]
) -> "Table":
    """Draw where a search stands, ``seconds`` after it stood at ``first``."""
    from rich.table import Table

    from mnemic.search.report.progress import duration

    rate = now.rate(first, seconds)
    told = f"{rate:.0f} trials an hour, {duration(now.left(first, seconds))} left"
    found = Table(title=f"{name}: {now.counted} of {now.wanted} trials", title_justify="left",
                  show_header=False, box=None, padding=(0, 2, 0, 0))  # fmt: skip
    found.add_column(no_wrap=True)
    found.add_column(overflow="ellipsis", no_wrap=True)
    found.add_row("pace", f"{duration(seconds)} so far, {now.running} running, "
                  + (told if rate else "no rate yet"))  # fmt: skip
    found.add_row("ends", ", ".join(f"{end} {count}" for end, count in now.ends.items()) or "none")
    for place, (point, skill) in enumerate(now.best, 1):
        found.add_row("best" if place == 1 else "", f"{place}. {point}: {skill}")
    for place, line in enumerate(latest):
        found.add_row("" if place else "latest", line)
    return found
