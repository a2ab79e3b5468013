"""The option ``--output`` of commands that draw what they measured, and the file that it names."""

from pathlib import Path
from typing import Annotated

import typer

from mnemic.cli.output import to_stderr
from mnemic.cli.pages import write_page

PICTURE = ".svg"
"""How a picture ends."""

Drawing = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Draw it to an SVG.", show_default=False),
]  # fmt: skip


def write_drawing(out: Path, picture: str) -> None:
    """Write a picture as one whole file, and say where.

    Raises:
        UsageError: the file cannot be written.
    """
    write_page(out, picture)
    to_stderr(f"drawn to {out}")
