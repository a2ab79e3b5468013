"""Where a command writes: plain text, JSON, tables; colours only where a terminal shows them."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mnemic.errors import InvalidSpec, MnemicError
from mnemic.models.files import finite

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 400
"""Columns where no terminal sets a width, so that no cell is cut."""


def echo(text: str) -> None:
    """Print a text as it is."""
    print(text.removesuffix("\n"))


def to_stderr(text: str) -> None:
    """Print a message for people, with ``mnemic:`` before it."""
    print(f"mnemic: {text}", file=sys.stderr)


def tell(error: MnemicError) -> None:
    """Print an error; a spec's issues as they are, one a line, each with its place first."""
    if isinstance(error, InvalidSpec):
        print(error, file=sys.stderr)
    else:
        to_stderr(str(error))


def print_json(data: Any) -> None:
    """Print a JSON document; numbers that JSON lacks (inf, nan) become null."""
    print(json.dumps(finite(data), indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str], None]]:
    """Say on a terminal of what something is done now."""
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    with console(stderr=True).status(doing) as status:
        yield lambda name: status.update(f"{doing} {name}")


def console(*, stderr: bool = False) -> "Console":
    """A rich console: no markup of its own, no colours where NO_COLOR is set or no terminal is."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(stderr=stderr, markup=False, highlight=False, width=width)
