"""What generated code's operations compute, in words: as their own docstrings say it."""

import ast
import re
from functools import cache

from mnemic.codegen.flat.modules import Name, modules
from mnemic.codegen.flat.reach import Folder
from mnemic.codegen.package import support_files

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
    line = first_line(function)
    begun = COMPUTES.match(line)
    told = SHAPES.sub("", line[begun.end() :]).rstrip(" .:;,") if begun else ""
    return told if len(told) > 1 else function.replace("_", " ")


def first_line(function: str) -> str:
    """Return the first line of the docstring of the function that an operation calls by this name,
    in PyTorch or, where that has none, on tiles; empty where neither has one.

    It is read from the sources, which needs no torch.
    """
    folder = _support()
    for place in ("support.ops", "support.tiles"):
        found = folder.definition(Name(place, function))
        if found is not None and found.name:
            return _docstring(folder, found).partition("\n")[0]
    return ""


def _docstring(folder: Folder, of: Name) -> str:
    for statement in folder.modules[of.module].statements:
        if of.name in statement.defined and isinstance(statement.node, ast.FunctionDef):
            return ast.get_docstring(statement.node) or ""
    return ""


@cache
def _support() -> Folder:
    return Folder(modules(support_files()))
