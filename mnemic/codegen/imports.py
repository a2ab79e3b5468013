"""Imports of generated modules: those whose names are used, and no others."""

import ast
import re


def pruned(source: str) -> str:
    """Return a module without the imports at its top that nothing in it uses."""
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    lines = source.splitlines(keepends=True)
    first, last = imports[0].lineno - 1, max(node.end_lineno or 0 for node in imports)
    kept = {node.lineno - 1: _keep_used(node, used) for node in imports}
    covered = {n for node in imports for n in range(node.lineno - 1, node.end_lineno or 0)}
    shown = [kept[n] if n in kept else "" if n in covered else lines[n] for n in range(first, last)]
    block = re.sub(r"\n{3,}", "\n\n", "".join(shown)).strip("\n")
    return "".join([*lines[:first], f"{block}\n", *lines[last:]])


def _keep_used(node: ast.Import | ast.ImportFrom, used: set[str]) -> str:
    """Write an import of the names that are used, or nothing."""
    names = [a for a in node.names if (a.asname or a.name).partition(".")[0] in used]
    return f"{ast.unparse(_with(node, names))}\n" if names else ""


def _with(node: ast.Import | ast.ImportFrom, names: list[ast.alias]) -> ast.stmt:
    if isinstance(node, ast.Import):
        return ast.Import(names)
    return ast.ImportFrom(node.module, names, node.level)
