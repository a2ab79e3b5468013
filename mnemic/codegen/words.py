"""What generated code's operations compute, in words: as their own docstrings say it."""

import ast
import re
from functools import cache

from mnemic.codegen.package import SUPPORT

SHAPES = re.compile(r"[:;,]? *(?:→|\[(?:\.\.\.|M,|B,)|see ``|``).*")
"""Where a first line goes on about shapes, or about other functions."""

COMPUTES = re.compile(r"(?:Compute|Return) +")
"""How a line begins whose rest says what is computed; one that begins with another verb tells what
is done, which is no name of it."""


def in_words(function: str) -> str:
    """Return what an operation of the support package computes, as its docstring says it; its name
    as words where that is not told.

    >>> in_words("recall_rows"), in_words("accumulate_blended")
    ('M x for every row', 'accumulate blended')
    """
    line = _first_lines().get(function, "")
    begun = COMPUTES.match(line)
    told = SHAPES.sub("", line[begun.end() :]).rstrip(" .:;,") if begun else ""
    return told if len(told) > 1 else function.replace("_", " ")


@cache
def _first_lines() -> dict[str, str]:
    """Read the first line of every function's docstring from its source, which needs no torch."""
    found: dict[str, str] = {}
    for path in sorted(SUPPORT.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found.setdefault(node.name, (ast.get_docstring(node) or "").partition("\n")[0])
    return found
