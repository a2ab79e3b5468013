"""Pages → Markdown in a folder → Sphinx → a site, put in its place whole."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from mnemic.models.files import MARKER, claim
from mnemic.relations import Map
from mnemic.site import guides
from mnemic.site.html import to_html
from mnemic.site.markdown import render
from mnemic.site.pages import pages
from mnemic.site.system import System

FIRST: Final = ("tutorial", "language", "notation", "layer", "parallel", "limits")
"""The guides that a reader meets first; the others follow in alphabetical order."""


class Built(NamedTuple):
    """A site: its folder, how many pages it has, their bytes, and what Sphinx warned of."""

    folder: Path
    pages: int
    bytes: int
    warnings: tuple[str, ...]


@contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """Make a folder ours for a site; one that was not there goes again where there is none.

    Raises ``UsageError`` where it holds what mnemic did not write.
    """
    new = not folder.exists()
    claim(folder, "site")
    try:
        yield folder
    except BaseException:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def build(systems: Sequence[System], drawn: Map, folder: Path) -> Built:
    """Write the site of some systems to a folder that is ours; what was there is replaced."""
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as aside:
        source, made = Path(aside) / "source", Path(aside) / "site"
        stage(systems, drawn, source)
        heard = to_html(source, made, Path(aside) / "kept")
        _replace(made, folder)
    html = list(folder.rglob("*.html"))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Built(folder, len(html), size, heard)


def stage(systems: Sequence[System], drawn: Map, source: Path) -> None:
    """Write the Markdown that the site is made of."""
    source.mkdir(parents=True)
    there = guides.stage(source) if guides.present() else []
    for name, text in pages(systems, drawn, there):
        path = source / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    front = source / "README.md"
    text = front.read_text(encoding="utf-8") if there else "# mnemic\n\nA compiler for memory.\n"
    listed = [name for name in there if name.startswith("docs/")]
    first = [f"docs/{name}" for name in FIRST if f"docs/{name}" in listed]
    later = [name for name in there if name not in (*first, "README")]
    contents = render("contents.md", guides=first + later)
    head, _, rest = text.partition("\n")
    ways = render("ways.md", guides=there)
    front.write_text(f"{head}\n\n{ways}\n{rest}{contents}", encoding="utf-8")


def _replace(made: Path, folder: Path) -> None:
    """Put the new site in the place of the old one, which is kept until then."""
    shutil.copy(folder / MARKER, made / MARKER)
    old = made.with_name("old")
    folder.rename(old)
    try:
        made.rename(folder)
    except OSError:
        old.rename(folder)
        raise
