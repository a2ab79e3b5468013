"""The layouts of the two resumable tables of compiled kernels: resources, and cycles too."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mnemic.kernels import cycle_table, table
from mnemic.kernels.jobs import Job
from mnemic.kernels.table import Cells


@dataclass(frozen=True)
class Layout:
    """One kind of table.

    Args:
        title: how a file of it begins, behind which the target stands.
        headings: of its columns; the last is the digest of what kernels were made from.
        rows: of a job and what was found; markdown: the file, of rows, target and versions.
    """

    title: str
    headings: Cells
    rows: Callable[[Job, Mapping[str, Any]], Iterator[Cells]]
    markdown: Callable[[Iterable[Cells], str, Mapping[str, str]], str]

    def first_line(self, target: str) -> str:
        """Return the first line of a file for a target."""
        return f"# {self.title} {target}"


RESOURCES = Layout(table.TITLE, table.HEADINGS, table.rows, table.markdown)
CYCLES = Layout(
    cycle_table.TITLE, cycle_table.HEADINGS, cycle_table.rows, cycle_table.markdown
)  # fmt: skip


def layout(*, stalls: bool) -> Layout:
    """Return the table of cycles with ``stalls``, else that of resources."""
    return CYCLES if stalls else RESOURCES
