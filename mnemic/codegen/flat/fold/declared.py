"""What the generated modules of a folder declare: instances of dataclasses, made when imported."""

import ast
from collections.abc import Iterator
from functools import lru_cache

from mnemic.codegen.flat.fold.attributes import Evaluator
from mnemic.codegen.flat.fold.classes import Classes
from mnemic.codegen.flat.fold.facts import Frame
from mnemic.codegen.flat.modules import Module, Name
from mnemic.codegen.flat.nodes import nodes
from mnemic.codegen.flat.reach import Folder


def evaluator(folder: Folder, own: set[str]) -> Evaluator:
    """Make what evaluates a folder's expressions, all instances of declared classes looked up."""
    classes = Classes(folder)
    found = Evaluator(classes, own)
    calls = list(_calls(classes))
    declared = {of for module, of, _, _ in calls if module.name in own}
    found.made = {of: [] for of in declared}
    found.changed = frozenset((*_replaced(folder), *_set(folder)))
    for module, of, node, names in calls:
        bases = [base for base in found.made if of in set(classes.subclasses(base))]
        if bases:
            made = found.instance(of, node, Frame(module, dict.fromkeys(names)))
            for base in bases:
                found.made[base].append(made)
    return found


def _calls(classes: Classes) -> Iterator[tuple[Module, Name, ast.Call, set[str]]]:
    """Yield every call of a dataclass: module, class, call, and the names bound around it."""
    for module in classes.folder.modules.values():
        for statement in module.statements:
            for node in _made(statement.node):
                of = classes.resolved(module, node.func)
                if of is None and isinstance(node.func, ast.Name) and node.func.id == "cls":
                    of = Name(module.name, getattr(statement.node, "name", ""))
                if of in classes.known and any(c.dataclass for c in classes.line(of)):
                    yield module, of, node, _bound(statement.node)


@lru_cache(maxsize=8192)
def _made(statement: ast.stmt) -> tuple[ast.Call, ...]:
    """Return the calls in a statement."""
    return tuple(n for n in nodes(statement) if isinstance(n, ast.Call))


@lru_cache(maxsize=8192)
def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that functions and comprehensions in a statement bind."""
    found = {n.arg for n in nodes(statement) if isinstance(n, ast.arg)}
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        found |= {
            n.id for n in nodes(statement)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }  # fmt: skip
    return found


def _replaced(folder: Folder) -> Iterator[str]:
    """Yield the fields that ``replace`` changes in copies."""
    for module in folder.modules.values():
        for statement in module.statements:
            for node in _made(statement.node):
                if isinstance(node.func, ast.Name) and node.func.id == "replace":
                    yield from (k.arg for k in node.keywords if k.arg)


def _set(folder: Folder) -> Iterator[str]:
    """Yield the attributes that are bound from outside, on anything but ``self``."""
    for module in folder.modules.values():
        for statement in module.statements:
            yield from _set_in(statement.node)


@lru_cache(maxsize=8192)
def _set_in(statement: ast.stmt) -> tuple[str, ...]:
    return tuple(
        node.attr for node in nodes(statement)
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    )  # fmt: skip
