"""What may be left out: expressions without effect, functions that do nothing."""

import ast
from functools import lru_cache

from mnemic.codegen.flat.fold.attributes import Evaluator
from mnemic.codegen.flat.fold.facts import Frame
from mnemic.codegen.flat.nodes import nodes

HARMLESS = frozenset((
    "isinstance", "len", "any", "all", "bool", "int", "set", "tuple", "hasattr", "getattr", "get",
    "is_floating_point", "numel", "keys", "values", "items", "startswith", "endswith", "dim",
    "is_compiling", "is_grad_enabled", "max", "min", "frozenset", "dict", "zip", "sorted",
))  # fmt: skip
"""Functions and methods that change nothing, so that a call may be left out."""


def harmless(
    node: ast.expr, evaluator: Evaluator | None = None, frame: Frame | None = None
) -> bool:
    """Return whether it makes no difference if an expression is not evaluated."""
    for inner in nodes(node):
        if isinstance(inner, ast.NamedExpr | ast.Await | ast.Yield):
            return False
        if isinstance(inner, ast.Call):
            name = getattr(inner.func, "attr", getattr(inner.func, "id", ""))
            known = evaluator is not None and frame is not None
            if name not in HARMLESS and not (
                known and evaluator is not None and frame is not None
                and evaluator.value(inner, frame) is not None
                and _effectless(inner, evaluator, frame, 4)
            ):  # fmt: skip
                return False
    return True


def _effectless(call: ast.Call, evaluator: Evaluator, frame: Frame, depth: int) -> bool:
    """Return whether a function of the folder only computes what it returns."""
    found = evaluator.function(call, frame)
    if found is None or not depth:
        return False
    function = found[0]
    module = evaluator.module_of(call, frame)
    place = Frame(module, dict.fromkeys(evaluator.arguments(function, module)))
    for node in nodes(function):
        stored = getattr(node, "ctx", None)
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(stored, ast.Load):
            return False
        if isinstance(node, ast.Raise | ast.With | ast.Global | ast.Nonlocal | ast.Assert):
            return False
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
            return False
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name not in HARMLESS and not _effectless(node, evaluator, place, depth - 1):
                return False
    return True


def imported(node: ast.ImportFrom) -> set[str]:
    """Return the names that an import binds."""
    return {a.asname or a.name for a in node.names}


@lru_cache(maxsize=4096)
def read(within: ast.AST) -> frozenset[str]:
    """Return the names that a function reads or takes away."""
    return frozenset(
        n.id for n in nodes(within)
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)
    )  # fmt: skip


def only_read(target: ast.expr, within: ast.AST) -> bool:
    """Return whether a name is only asked what it holds, so that nobody puts anything into it."""
    if not isinstance(target, ast.Name):
        return False
    reads: set[int] = set()
    for node in nodes(within):
        places: list[ast.expr] = []
        match node:
            case ast.If() | ast.IfExp() | ast.Assert():
                places = [node.test]
            case ast.BoolOp():
                places = node.values
            case ast.UnaryOp(op=ast.Not()):
                places = [node.operand]
            case ast.For() | ast.comprehension():
                places = [node.iter]
            case ast.Subscript(ctx=ast.Load()) | ast.Starred():
                places = [node.value]
            case ast.Compare():
                places = node.comparators
            case ast.Call(func=ast.Name(id="len" | "any" | "all" | "tuple" | "min" | "max")):
                places = node.args
        reads |= {id(x) for x in places}
    return all(
        id(n) in reads
        for n in nodes(within)
        if isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load)
    )


def _lines(function: ast.FunctionDef) -> list[ast.stmt]:
    """Return a function's statements, its docstring aside."""
    return [
        x for x in function.body
        if not (isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant))
    ]  # fmt: skip


def gives_back(function: ast.FunctionDef) -> str | None:
    """Return the name whose value is all that a function returns, or ``None``."""
    match _lines(function):
        case [ast.Return(value=ast.Name(id=name))]:
            return name
    return None


def does_nothing(function: ast.FunctionDef) -> bool:
    """Return whether a function ends at once."""
    match _lines(function):
        case [] | [ast.Return(value=None)] | [ast.Pass()]:
            return True
    return False


def passes(body: list[ast.stmt]) -> bool:
    return len(body) == 1 and isinstance(body[0], ast.Pass)
