"""Methods and fields that nothing in a folder names."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from mnemic.codegen.flat.fold.classes import Class, Classes
from mnemic.codegen.flat.fold.edits import Text
from mnemic.codegen.flat.modules import Name
from mnemic.codegen.flat.nodes import nodes


def named(classes: Classes) -> Counter[str]:
    """Count how often each word stands behind a dot, or in quotes, in all statements."""
    found: Counter[str] = Counter()
    for module in classes.folder.modules.values():
        found += _counted(module.tree)
    return found


def named_by(classes: Classes, found: Class) -> Counter[str]:
    """Count words behind dots or in quotes in the modules of a class, its heirs and its bases."""
    line = {x.name for x in classes.line(found.name)} | set(classes.subclasses(found.name))
    words: Counter[str] = Counter()
    for module in {n.module for n in line}:
        words += _counted(classes.folder.modules[module].tree)
    return words


@lru_cache(maxsize=1024)
def _counted(tree: ast.AST) -> Counter[str]:
    return Counter(_words(tree))


def _words(tree: ast.AST) -> Iterator[str]:
    for node in nodes(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and str(node.value).isidentifier():
            yield str(node.value)


def public(classes: Classes, roots: list[Name]) -> set[Name]:
    """Return the classes that users of the folder call methods of: those of its layer and rule."""
    return {found.name for root in roots for found in classes.line(root)}


def without(
    text: Text, found: Class, classes: Classes, words: Counter[str], kept: set[Name]
) -> None:
    """Leave out the methods of a class that nothing names; of a public one the private ones."""
    near: Counter[str] | None = None
    for node in found.node.body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
            continue
        if not node.name.startswith("_") and (
            found.name in kept or (found.foreign and not found.protocol)
        ):
            continue
        counts = words
        if node.name.startswith("_"):
            counts = near = named_by(classes, found) if near is None else near
        if counts[node.name] <= sum(word == node.name for word in _words(node)):
            remove(text, node)


def remove(text: Text, node: ast.stmt) -> None:
    """Take a method out, with the blank lines before it."""
    assert node.end_lineno is not None
    first = text.first_line(node)
    while first and not text.lines[first - 1].strip():
        first -= 1
    text.edits.append((text.starts[first], text.starts[node.end_lineno], b""))
