"""The files that ``--output`` of a command that measures may name, and how they are written."""

from collections.abc import Mapping
from pathlib import Path

from mnemic.errors import UsageError
from mnemic.models.files import replacing

PAGE = ".md"
"""How a page of Markdown ends."""


def demand_ending(out: Path | None, *endings: str) -> None:
    """Check the name of a file before anything is measured for it: what is there is written over,
    so a spec or a note of the user's must not be it by mistake.

    Raises:
        UsageError: the name has none of the endings, or is a folder's.
    """
    if out is None:
        return
    if out.suffix not in endings:
        allowed = " or ".join(endings)
        raise UsageError(f"--output: read '{out}', allowed a name that ends in {allowed}")
    if out.is_dir():
        raise UsageError(f"--output: read '{out}', which is a folder, allowed a file")


def write_page(out: Path, text: str, beside: Mapping[str, str] | None = None) -> None:
    """Write a page or a picture, and others beside it by name, each whole or not at all.

    Raises:
        UsageError: one of them cannot be written.
    """
    every = {out: text, **{out.with_name(name): more for name, more in (beside or {}).items()}}
    for path, content in every.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as part:
                part.write_text(content, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
