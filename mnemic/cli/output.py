"""Where a command writes: plain text, JSON, tables; colours only where a terminal shows them."""

import codecs
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from mnemic.errors import InvalidSpec, MnemicError
from mnemic.models.files import finite

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 400
"""Columns where no terminal sets a width, so that no cell is cut."""


def raw(text: str) -> None:
    """Print a text as it is: a page, a schema, what another program reads."""
    print(text.removesuffix("\n"))


def echo(text: str) -> None:
    """Print a text for people: on a terminal, long lines go on between two words."""
    raw(folded(text, width(sys.stdout)))


def to_stderr(text: str) -> None:
    """Print a message for people, with ``mnemic:`` before it."""
    print(folded(f"mnemic: {text}", width(sys.stderr)), file=sys.stderr)


@contextmanager
def going_on(folder: Path) -> Iterator[None]:
    """Say, where Ctrl-C ends what is within, that the same command goes on in the folder."""
    try:
        yield
    except KeyboardInterrupt:
        to_stderr(f"{folder}: what is finished is kept, what was in progress is done again: "
                  "the same command goes on")  # fmt: skip
        raise


def width(stream: TextIO) -> int | None:
    """Return the columns of a terminal; None where the stream is none."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def folded(text: str, columns: int | None) -> str:
    """Return the text with lines of at most so many columns; a longer word stays whole.

    What goes on stands under the second column of a line that has two, else four further in.

    >>> print(folded("  class        affine: as it is linear in the memory", 45))
      class        affine: as it is linear in the
                   memory
    """
    if columns is None:
        return text
    return "\n".join(_folded(line, columns) for line in text.split("\n"))


def _folded(line: str, columns: int) -> str:
    if len(line) <= columns:
        return line
    within, second = len(line) - len(line.lstrip()), _SECOND.match(line)
    hang = second.end() if second and second.end() <= columns // 3 else within + 4
    lines = textwrap.wrap(
        line.lstrip(), columns, initial_indent=" " * within, subsequent_indent=" " * hang,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(lines)


_SECOND = re.compile(r" *\S.*? {2,}(?=\S)")
"""What stands before the second column of a line."""


def tell(error: MnemicError) -> None:
    """Print an error; a spec's issues as they are, one a line, each with its place first."""
    if isinstance(error, InvalidSpec):
        print(folded(str(error), width(sys.stderr)), file=sys.stderr)
    else:
        to_stderr(str(error))


def print_json(data: Any) -> None:
    """Print a JSON document; numbers that JSON lacks (inf, nan) become null.

    Where standard output is not UTF-8, what is not ASCII is escaped, so that nothing is lost.
    """
    utf8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    print(json.dumps(finite(data), indent=2, ensure_ascii=not utf8, allow_nan=False))


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that says on a terminal of what something is done now."""
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    with console(stderr=True).status(doing) as status:
        yield lambda name: status.update(f"{doing} {name}")


def console(*, stderr: bool = False) -> "Console":
    """Make a rich console: no markup of its own, colours on a terminal alone, without NO_COLOR."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(stderr=stderr, markup=False, highlight=False, width=width)
