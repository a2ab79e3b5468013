"""The classes of a folder: what they define, inherit and hold."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from mnemic.codegen.flat.modules import Module, Name
from mnemic.codegen.flat.reach import Folder

Function = ast.FunctionDef


@dataclass
class Class:
    """A class of the folder."""

    name: Name
    node: ast.ClassDef
    module: Module
    bases: tuple[Name, ...]
    foreign: bool
    """Whether it has a base from outside the folder, which may call what it defines."""
    functions: dict[str, Function] = field(default_factory=dict)
    held: dict[str, ast.expr] = field(default_factory=dict)
    """What its body assigns; of a dataclass the defaults of its fields."""
    annotated: dict[str, ast.expr] = field(default_factory=dict)
    """What its body annotates, in order; of a dataclass its fields."""

    def __post_init__(self) -> None:
        for node in self.node.body:
            if isinstance(node, Function):
                self.functions[node.name] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.annotated[node.target.id] = node.annotation
                if node.value is not None:
                    self.held[node.target.id] = node.value
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.held[target.id] = node.value

    @property
    def dataclass(self) -> bool:
        """Whether instances hold what its body annotates."""
        return any("dataclass" in ast.dump(d) for d in self.node.decorator_list)

    @property
    def protocol(self) -> bool:
        """Whether it only says what others have."""
        return any(isinstance(b, ast.Name) and b.id == "Protocol" for b in self.node.bases)

    def is_property(self, name: str) -> bool:
        """Return whether a function is called by being read."""
        decorators = self.functions[name].decorator_list
        words = {d.id for d in decorators if isinstance(d, ast.Name)}
        return bool(words & {"property", "cached_property"})


class Classes:
    """All classes of a folder's statements that are kept."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.known: dict[Name, Class] = {}
        self.tops = {
            name: frozenset().union(*(s.defined for s in module.statements))
            for name, module in folder.modules.items()
        }
        for module in folder.modules.values():
            for statement in module.statements:
                if isinstance(statement.node, ast.ClassDef):
                    found = self._read(module, statement.node)
                    self.known[found.name] = found
        self.below: dict[Name, list[Name]] = {name: [] for name in self.known}
        for found in self.known.values():
            for base in found.bases:
                self.below[base].append(found.name)

    def _read(self, module: Module, node: ast.ClassDef) -> Class:
        named = [self.resolved(module, base) for base in node.bases]
        bases = tuple(of for of in named if of is not None and self._is_class(of))
        return Class(Name(module.name, node.name), node, module, bases, len(bases) < len(named))

    def _is_class(self, of: Name) -> bool:
        module = self.folder.modules.get(of.module)
        return module is not None and any(
            isinstance(s.node, ast.ClassDef) and s.node.name == of.name for s in module.statements
        )

    def resolved(self, module: Module, node: ast.expr) -> Name | None:
        """Return what a name, or a module's attribute, at the top of a module stands for."""
        if isinstance(node, ast.Attribute):
            base = self.resolved(module, node.value)
            if base is None or base.name:
                return None
            return self.folder.definition(Name(base.module, node.attr))
        if not isinstance(node, ast.Name):
            return None
        if node.id in self.tops[module.name]:
            return Name(module.name, node.id)
        if node.id in module.imports:
            return self.folder.definition(module.imports[node.id])
        return None

    def behind(self, name: Name) -> Name:
        """Return the one class that has all that a protocol asks for; any other class as it is."""
        found = self.known[name]
        if not found.protocol:
            return name
        asked = found.functions.keys() | found.annotated.keys()
        having = [of for of in self.known if asked <= self.members(of) and of != name]
        having = [of for of in having if not self.known[of].protocol]
        return having[0] if asked and len(having) == 1 else name

    def members(self, name: Name) -> set[str]:
        """Return the names that instances of a class have, its own or inherited."""
        return {
            n for x in self.line(name) for n in (*x.functions, *x.annotated, *x.held)
        }  # fmt: skip

    def line(self, name: Name) -> Iterator[Class]:
        """Yield a class and what it inherits from, nearest first."""
        found = self.known.get(name)
        if found is None:
            return
        yield found
        for base in found.bases:
            yield from self.line(base)

    def subclasses(self, name: Name) -> Iterator[Name]:
        """Yield a class and all that inherit from it."""
        yield name
        for below in self.below.get(name, ()):
            yield from self.subclasses(below)

    def owner(self, name: Name, attribute: str) -> Class | None:
        """Return the nearest class in a class's line that defines an attribute, or ``None``."""
        for found in self.line(name):
            if attribute in found.functions or attribute in found.held:
                return found
            if attribute in found.annotated:
                return found
        return None
