"""A folder's modules as statements: what each defines, and what it imports from the others."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mnemic.codegen.flat.nodes import nodes


@dataclass(frozen=True)
class Name:
    """Something that a module of the folder defines; ``name`` is empty for the module itself."""

    module: str
    name: str = ""


@dataclass(frozen=True)
class Statement:
    """A statement at the top of a module, with the comments before it and its docstring after."""

    node: ast.stmt
    first: int
    """Its first line, comments and decorators included, from 0."""
    last: int
    """The line after its last."""
    defined: frozenset[str]

    @property
    def definition(self) -> bool:
        """Whether it is a function or a class."""
        return isinstance(self.node, ast.FunctionDef | ast.ClassDef)


@dataclass
class Module:
    """A module of the folder: ``name`` is its dotted path, ``support.tiles.loads``."""

    name: str
    package: str
    source: str
    tree: ast.Module = field(init=False)
    lines: list[str] = field(init=False)
    statements: list[Statement] = field(init=False)
    imports: dict[str, Name] = field(init=False)
    """Names bound at the top to what other modules of the folder define."""
    stars: list[str] = field(init=False)
    """Modules all of whose names are imported."""
    outside: dict[str, ast.stmt] = field(init=False)
    """Names bound at the top to what lies outside the folder."""

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.source)
        self.lines = self.source.splitlines(keepends=True)
        self.imports, self.stars, self.outside, self.statements = {}, [], {}, []
        for node in self.tree.body:
            self._read(node)

    def _read(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)
        elif _is_text(node) and self.statements:
            last = self.statements[-1]
            self.statements[-1] = Statement(last.node, last.first, _end(node), last.defined)
        elif _is_text(node):
            pass  # the module's docstring
        elif _types_only(node):
            for inner in nodes(node):
                if isinstance(inner, ast.ImportFrom):
                    self._import(inner)
        else:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]) - 1
            while self.lines[first - 1].startswith("#") and "ruff" not in self.lines[first - 1]:
                first -= 1
            self.statements.append(Statement(node, first, _end(node), frozenset(_defined(node))))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            bound = (alias.asname or alias.name).partition(".")[0]
            if isinstance(node, ast.Import) or not node.level:
                self.outside[bound] = node
            elif alias.name == "*":
                self.stars.append(self.resolved(node))
            else:
                self.imports[bound] = Name(self.resolved(node), alias.name)

    def resolved(self, node: ast.ImportFrom) -> str:
        """Return the dotted path of what a relative import names."""
        parts = self.package.split(".") if self.package else []
        parts = parts[: len(parts) - (node.level - 1)]
        return ".".join([*parts, *([node.module] if node.module else [])])

    @property
    def docstring(self) -> str:
        """The module's docstring, quoted as it stands; empty where there is none."""
        if not self.tree.body or not _is_text(self.tree.body[0]):
            return ""
        node = self.tree.body[0]
        return "".join(self.lines[node.lineno - 1 : _end(node)])


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _is_text(node: ast.stmt) -> bool:
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant and isinstance(node.value.value, str)  # type: ignore[attr-defined]


def _types_only(node: ast.stmt) -> bool:
    """Return whether a statement is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
        return
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in targets:
        for inner in nodes(target) if target is not None else ():
            if isinstance(inner, ast.Name):
                yield inner.id


def modules(files: Mapping[str, str]) -> dict[str, Module]:
    """Read modules from a folder's files, by dotted path; the folder itself is the empty one."""
    found = {}
    for path, text in files.items():
        if path.endswith(".py"):
            parts = path.removesuffix(".py").split("/")
            package = ".".join(parts[:-1])
            name = package if parts[-1] == "__init__" else ".".join(parts)
            found[name] = Module(name, package, text)
    return found
