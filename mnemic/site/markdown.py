"""Templates of Markdown in which everything that is filled in is escaped."""

import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.ticker import EngFormatter


class Ready(str):
    """Text that is Markdown already."""


@cache
def _environment(kind: str) -> Environment:
    markdown = kind == "md"
    made = Environment(
        loader=PackageLoader("mnemic.site"), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True, autoescape=not markdown,
        finalize=escaped if markdown else None,
    )  # fmt: skip
    made.filters |= {"fence": fence, "math": math, "ready": Ready, "short": short, "span": span}
    return made


def render(template: str, **values: Any) -> Ready:
    """Return a template filled in; text is escaped as the template's ending says."""
    kind = template.rpartition(".")[2]
    return Ready(_environment(kind).get_template(template).render(**values))


def escaped(value: Any) -> str:
    """Return text as Markdown that shows it as it is, on one line.

    >>> escaped("a_b <i>")
    'a\\\\_b \\\\<i\\\\>'
    """
    if isinstance(value, Ready):
        return value
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(str(value).split()))


def fence(text: str, kind: str = "") -> Ready:
    """Return a block of code, fenced by more backticks than it holds."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return Ready(f"{ticks}{kind}\n{text.rstrip()}\n{ticks}")


def span(text: str) -> Ready:
    """Return code within a line, in a table's cell too."""
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return Ready(f"{ticks}{pad}{' '.join(text.split()).replace('|', chr(92) + '|')}{pad}{ticks}")


def math(latex: str) -> Ready:
    """Return a formula within a line, in a table's cell too."""
    bars = latex.replace(r"\|", r"\Vert ").replace("|", r"\vert ")
    return Ready("{math}`" + " ".join(bars.split()) + "`")


def short(count: float) -> str:
    """Return a count with two digits after the point: 8.19k, 24.60M."""
    return str(EngFormatter(places=2, sep="")(count)).replace(".00", "")
