"""The option ``--output`` of commands that draw what they measured, and the file that it names."""

from pathlib import Path
from typing import Annotated

import typer

from mnemic.cli.output import to_stderr
from mnemic.errors import UsageError
from mnemic.models.files import replacing

Drawing = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Draw it to an SVG.", show_default=False),
]  # fmt: skip


def demand_svg_name(out: Path | None) -> None:
    """Raise UsageError where the file's name does not end in .svg."""
    if out is not None and out.suffix != ".svg":
        raise UsageError(f"drawn as SVG: read '{out}', allowed a name that ends in .svg")


def write_drawing(out: Path, picture: str) -> None:
    """Write a picture as one whole file, and say where.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        with replacing(out) as beside:
            beside.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from error
    to_stderr(f"drawn to {out}")
