"""What generated code's operations compute, in words: as their own docstrings say it."""

import ast
import re
from functools import cache

from mnemic.codegen.package import SUPPORT

SHAPES = re.compile(r"[:;,]? *(?:→|\[(?:\.\.\.|M,|B,)|see ``|``).*")
"""Where a first line goes on about shapes, or about other functions."""

REFERRING = ("The same", "Scores under the same", "[")
"""How a line begins that says nothing by itself."""


def in_words(function: str) -> str:
    """What an operation of the support package computes; its name as words where that is not told.

    >>> in_words("recall_rows"), in_words("accumulate_blended")
    ('M x for every row', 'accumulate blended')
    """
    line = SHAPES.sub("", _first_lines().get(function, "")).rstrip(" .:;,")
    told = len(line) > 1 and not line.startswith(REFERRING)
    return line if told else function.replace("_", " ")


@cache
def _first_lines() -> dict[str, str]:
    """The first line of every function's docstring; the source is read, since it needs torch."""
    found: dict[str, str] = {}
    for path in sorted(SUPPORT.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found.setdefault(node.name, (ast.get_docstring(node) or "").partition("\n")[0])
    return found
