"""Where an expression stands, and what a function's text tells of it."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from mnemic.codegen.flat.fold.classes import Function
from mnemic.codegen.flat.fold.values import Value
from mnemic.codegen.flat.modules import Module
from mnemic.codegen.flat.nodes import nodes

DEEPEST: Final = 12
"""Calls within calls that are followed."""


@dataclass(frozen=True)
class Frame:
    """Where an expression stands: its module, and what its names stand for."""

    module: Module
    names: Mapping[str, Value | None] = field(default_factory=dict)
    depth: int = 0
    known: dict[ast.expr, Value | None] = field(default_factory=dict, init=False, compare=False)
    """Values of expressions that were asked for here."""

    def with_names(self, names: Mapping[str, Value | None]) -> "Frame":
        """Return the same place with more names."""
        return replace(self, names={**self.names, **names})


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters, those by keyword last."""
    told = function.args
    return [a.arg for a in (*told.posonlyargs, *told.args, *told.kwonlyargs)]


@lru_cache(maxsize=8192)
def bindings(node: ast.stmt) -> tuple[frozenset[str], int]:
    """Return the names that a statement binds, and how many returns it has."""
    names, returns = set(), 0
    for inner in nodes(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
        elif isinstance(inner, ast.FunctionDef) and inner is not node:
            names.add(inner.name)
        returns += isinstance(inner, ast.Return)
    return frozenset(names), returns


@lru_cache(maxsize=8192)
def generates(function: Function) -> bool:
    """Return whether a function yields."""
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in nodes(function))


@lru_cache(maxsize=8192)
def parsed(text: str) -> ast.expr:
    """Parse an annotation in quotes."""
    return ast.parse(text, mode="eval").body
