"""A folder's support → the same for the one spec that its generated modules declare."""

import ast
from collections.abc import Iterable

from mnemic.codegen.flat.fold.classes import Classes
from mnemic.codegen.flat.fold.declared import evaluator
from mnemic.codegen.flat.fold.edits import Text
from mnemic.codegen.flat.fold.known_outcomes import Folding
from mnemic.codegen.flat.fold.methods import named, public, without
from mnemic.codegen.flat.modules import Module, Name
from mnemic.codegen.flat.reach import Folder

ROUNDS = 12
"""Each round leaves less for the next."""


def folded(folder: Folder, roots: Iterable[Name], own: set[str], api: Iterable[Name]) -> Folder:
    """Return the folder with what roots reach alone, and of that what can happen.

    Tests whose outcome follows from what the modules ``own`` declare are written as their outcome,
    until nothing changes any more; ``api`` names what the folder's users see.
    """
    roots = [*roots]
    folder = _reached(folder, roots)
    near = folder.modules.keys() - own
    for _ in range(ROUNDS):
        after = _reached(_pruned(_folded(folder, own, near), api), roots)
        changed = {n for n, m in after.modules.items() if m is not folder.modules[n]}
        folder = after
        if not changed:
            break
        near = {n for n, m in folder.modules.items() if n in changed or _imports_of(m) & changed}
        near -= own
    return folder


def _imports_of(module: Module) -> set[str]:
    """Return the modules that a module names, and their packages' members."""
    found = {of.module for of in module.imports.values()}
    return found | {f"{of.module}.{of.name}" for of in module.imports.values()}


def _reached(folder: Folder, roots: list[Name]) -> Folder:
    """Keep the statements that roots reach alone, with the modules' imports."""
    kept = folder.reached(roots)
    texts = {}
    for name, statements in kept.items():
        module = folder.modules[name]
        if len(statements) == len(module.statements):
            texts[name] = module.source
            continue
        gone = {
            line for s in module.statements if s not in statements
            for line in range(s.first, s.last)
        }  # fmt: skip
        texts[name] = "".join(x for i, x in enumerate(module.lines) if i not in gone)
    return _again(folder, texts)


def _again(folder: Folder, texts: dict[str, str]) -> Folder:
    """Make a folder of texts by module; modules that did not change are not read again."""
    found = {}
    for name, text in texts.items():
        old = folder.modules[name]
        found[name] = old if old.source == text else Module(name, old.package, text)
    # packages on the way to names stay, as they only pass them on
    for name, module in folder.modules.items():
        if name not in found:
            text = _imports(module)
            same = module.source == text
            found[name] = module if same else Module(name, module.package, text)
    known = {k: uses for k, uses in folder.known.items() if found[k[0]] is folder.modules[k[0]]}
    return Folder(found, known)


def _imports(module: Module) -> str:
    """Write the imports of a module of which nothing else is kept."""
    nodes = [n for n in module.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    return "".join(ast.unparse(n) + "\n" for n in nodes)


def _folded(folder: Folder, own: set[str], near: Iterable[str]) -> Folder:
    found = evaluator(folder, own)
    texts = {name: module.source for name, module in folder.modules.items()}
    texts |= {name: Folding(found, folder.modules[name]).run() for name in near}
    return _again(folder, texts)


def _pruned(folder: Folder, api: Iterable[Name]) -> Folder:
    classes = Classes(folder)
    words, kept = named(classes), public(classes, [*api])
    texts = {name: Text(module.source) for name, module in folder.modules.items()}
    for found in classes.known.values():
        without(texts[found.module.name], found, classes, words, kept)
    return _again(folder, {name: text.changed() for name, text in texts.items()})
