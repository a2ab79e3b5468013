"""All nodes of a tree, listed once: folding asks for those of a statement again and again."""

import ast
from functools import lru_cache
from itertools import chain

TOLD = {"ctx", "op", "ops"}
"""Fields whose nodes say something of the node that has them, and have none of their own."""


@lru_cache(maxsize=1 << 16)
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """List a tree's nodes, outer ones first, as ``ast.walk`` does, without those of ``TOLD``.

    What it returns is kept: a tree that was asked for must not be changed any more.
    """
    found = [tree]
    for node in found:
        inner = [getattr(node, name, None) for name in node._fields if name not in TOLD]
        parts = chain.from_iterable(x if isinstance(x, list) else (x,) for x in inner)
        found += [x for x in parts if isinstance(x, ast.AST)]
    return tuple(found)
