"""All nodes of a tree, listed once: folding asks for those of a statement again and again."""

import ast
from functools import lru_cache

TOLD = {"ctx", "op", "ops"}
"""Fields whose nodes say something of the node that has them, and have none of their own."""

PLAIN = {
    "arg", "asname", "attr", "conversion", "id", "is_async", "kind", "level", "module",
    "simple", "type_comment",
}  # fmt: skip
"""Fields that hold no node: words and numbers."""

FIELDS: dict[type, tuple[str, ...]] = {}
"""The other fields of each kind of node that has been met."""


@lru_cache(maxsize=1 << 16)
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """List a tree's nodes, outer ones first, as ``ast.walk`` does, without those of ``TOLD``.

    What it returns is kept: a tree that was asked for must not be changed any more.
    """
    found = [tree]
    for node in found:
        found += children(node)
    return tuple(found)


def children(node: ast.AST) -> list[ast.AST]:
    """List the nodes right below one, in their order."""
    kind = node.__class__
    if kind not in FIELDS:
        FIELDS[kind] = tuple(name for name in kind._fields if name not in TOLD | PLAIN)
    found: list[ast.AST] = []
    for name in FIELDS[kind]:
        inner = getattr(node, name, None)
        if isinstance(inner, ast.AST):
            found.append(inner)
        elif inner.__class__ is list:
            found += [x for x in inner if isinstance(x, ast.AST)]
    return found
