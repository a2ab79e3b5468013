"""What a folder's generated modules reach of its support: names followed, statement by statement.

A function, a class or a constant is reached where a statement that is reached names it. Classes
are kept whole: which of their methods are called cannot be told from the text.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mnemic.codegen.flat.modules import Module, Name, Statement
from mnemic.codegen.flat.nodes import nodes


@dataclass(frozen=True)
class Use:
    """A name in a statement, and what it stands for."""

    node: ast.expr
    of: Name
    """What is used: behind a name that only passes it on, the definition itself."""
    via: str
    """The module that it was imported from; empty where it is the module's own."""
    quoted: bool = False
    """Whether it stands in an annotation in quotes."""

    @property
    def prefix(self) -> str:
        """The module in ``module.name``, or nothing."""
        value = getattr(self.node, "value", None)
        return value.id if isinstance(value, ast.Name) else ""


@dataclass(frozen=True)
class Folder:
    """The modules of a compiled folder by dotted path."""

    modules: dict[str, Module]
    known: dict[tuple[str, int], tuple[Use, ...]] = field(default_factory=dict)
    """What statements use, by module and line, as far as it has been looked for."""

    def with_modules(self, modules: dict[str, Module]) -> "Folder":
        """Return the folder with more modules, which its own do not import."""
        return Folder({**self.modules, **modules}, dict(self.known))

    def definition(self, of: Name) -> Name | None:
        """Find where a name is defined, behind modules that pass it on; ``None`` outside."""
        module = self.modules.get(of.module)
        if module is None or not of.name:
            return of if module is not None else None
        if any(of.name in s.defined for s in module.statements):
            return of
        if of.name in module.imports:
            return self.definition(module.imports[of.name])
        whole = f"{of.module}.{of.name}" if of.module else of.name
        if whole in self.modules:
            return Name(whole)
        passed = (self.definition(Name(star, of.name)) for star in module.stars)
        return next((found for found in passed if found is not None), None)

    def uses(self, module: Module, statement: Statement) -> tuple[Use, ...]:
        """Return what a statement names of the folder."""
        key = (module.name, statement.first)
        if key not in self.known:
            self.known[key] = tuple(self._find_uses(module, statement))
        return self.known[key]

    def _find_uses(self, module: Module, statement: Statement) -> Iterator[Use]:
        known = {n: Name(module.name, n) for s in module.statements for n in s.defined}
        known |= module.imports | imported_within(module, statement)
        prefixes = set()
        for node, quoted in _expressions(statement.node):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                base = known.get(node.value.id)
                of = self.definition(base) if base else None
                if of is not None and not of.name:
                    found = self.definition(Name(of.module, node.attr))
                    if found is not None:
                        prefixes.add(id(node.value))
                        yield Use(node, found, of.module, quoted)
            elif isinstance(node, ast.Name) and id(node) not in prefixes:
                base = known.get(node.id)
                of = self.definition(base) if base else None
                if base is not None and of is not None:
                    yield Use(node, of, "" if base.module == module.name else base.module, quoted)

    def reached(self, roots: Iterable[Name]) -> dict[str, list[Statement]]:
        """Return the statements that roots reach, by module, each module's in its order."""
        seen: set[Name] = set()
        todo = list(roots)
        while todo:
            of = todo.pop()
            if of in seen:
                continue
            seen.add(of)
            module = self.modules[of.module]
            for statement in module.statements:
                if not of.name or of.name in statement.defined or not statement.defined:
                    todo += (use.of for use in self.uses(module, statement))
        wanted: dict[str, set[str]] = {}
        for of in seen:
            wanted.setdefault(of.module, set()).add(of.name)
        return {
            name: [
                s for s in self.modules[name].statements
                if "" in names or not s.defined or s.defined & names
            ]
            for name, names in sorted(wanted.items())
        }  # fmt: skip


def imported_within(module: Module, statement: Statement) -> dict[str, Name]:
    """Return what a statement imports of the folder inside a function, by bound name."""
    return {
        alias.asname or alias.name: Name(module.resolved(node), alias.name)
        for node in nodes(statement.node)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }


def _expressions(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yield all nodes, outer ones first, and whether they are of an annotation in quotes."""
    for inner in nodes(node):
        yield inner, False
        for annotation in (getattr(inner, "annotation", None), getattr(inner, "returns", None)):
            for part in nodes(annotation) if isinstance(annotation, ast.AST) else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    for quoted in nodes(ast.parse(part.value, mode="eval")):
                        yield quoted, True
