"""A table of compiled kernels that can be resumed job by job, kept in a file or only shown."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mnemic.errors import UsageError
from mnemic.kernels import table
from mnemic.kernels.jobs import Job
from mnemic.kernels.layouts import RESOURCES, Layout
from mnemic.kernels.table import Cells
from mnemic.models.files import replacing

Key = tuple[str, str]
"""A spec's name and its d."""


@dataclass
class Kept:
    """Rows by spec and d, of one target and one set of versions: others give other registers."""

    path: Path | None
    target: str
    versions: Mapping[str, str]
    layout: Layout = RESOURCES
    rows: dict[Key, list[Cells]] = field(default_factory=dict)

    @classmethod
    def read(
        cls, path: Path | None, target: str, versions: Mapping[str, str],
        layout: Layout = RESOURCES,
    ) -> "Kept":  # fmt: skip
        """Read what a file holds; nothing where there is none, or where it is of other versions.

        Raises ``UsageError`` for a file that is no such table, or one of another target.
        """
        kept = cls(path, target, versions, layout)
        if path is None or not path.exists():
            return kept
        text = path.read_text(encoding="utf-8", errors="replace")
        title = layout.first_line(target)
        if (first := text.partition("\n")[0]) != title:
            raise UsageError(f"output: {path} begins with {first!r}, not with {title!r}")
        if made_with(text, versions):
            kept.rows = parsed(text, layout.headings)
        return kept

    def has(self, job: Job) -> bool:
        """Return whether a job's rows are here, made from the current source of its kernels."""
        found = self.rows.get((job.spec, str(job.width)), [])
        return bool(found) and all(row[table.SOURCE] == job.source for row in found)

    def of(self, jobs: Iterable[Job]) -> list[Cells]:
        """Return the rows of jobs, in their order."""
        return [row for job in jobs for row in self.rows.get((job.spec, str(job.width)), [])]

    def put(self, job: Job, rows: Iterable[Cells]) -> None:
        """Hold a job's rows in place of those that were here, and write the file."""
        self.rows[job.spec, str(job.width)] = list(rows)
        self.write()

    def only(self, specs: Iterable[str]) -> None:
        """Drop the rows of all other specs, and write the file."""
        known = set(specs)
        self.rows = {key: found for key, found in self.rows.items() if key[0] in known}
        self.write()

    def write(self) -> None:
        """Write the file anew, by name and d: whole or not at all."""
        if self.path is None:
            return
        ordered = sorted(self.rows, key=lambda key: (key[0], int(key[1])))
        rows = (x for key in ordered for x in self.rows[key])
        text = self.layout.markdown(rows, self.target, self.versions)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as beside:
            beside.write_text(text, encoding="utf-8")


def parsed(text: str, headings: Cells = table.HEADINGS) -> dict[Key, list[Cells]]:
    """Parse the rows of a written table by spec and d; of other tables behind it none."""
    found: dict[Key, list[Cells]] = {}
    for row in text.splitlines():
        if not row.startswith("| "):
            continue
        inside = row.removeprefix("| ").removesuffix(" |")
        cells = tuple(cell.replace("\\|", "|").strip() for cell in inside.split(" | "))
        if cells[0] not in (headings[0], "---") and len(cells) == len(headings):
            found.setdefault((cells[0], cells[2]), []).append(cells)
    return found


def made_with(text: str, versions: Mapping[str, str]) -> bool:
    """Return whether a written table is of these versions."""
    return all(f"{package} {version} " in text for package, version in versions.items())
