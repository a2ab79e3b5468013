"""Which modules become one file: a module that one file alone imports is written into that file."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from mnemic.codegen.flat.modules import Module, Name, Statement
from mnemic.codegen.flat.nodes import nodes
from mnemic.codegen.flat.reach import Folder, Use, imported_within

LONGEST = 450
"""Lines of a file, above which no other module is written into it."""

SHORT = 130
"""Lines of a file, up to which it is written into another where it may."""

FACADES = {"support.ops": "ops", "support.tiles": "tiles"}
"""Modules that only pass names on, by which generated code calls operations: ``ops.reach``."""

COMMANDS = (
    "cases", "commands", "selftest", "shapes", "step_launch", "tune", "verify", "versions"
)  # fmt: skip
"""Support that mnemic's own tools ask a folder for, each a file under its own name."""


class Clash(Exception):
    """One name would stand for two things in a file."""


@dataclass(frozen=True)
class Part:
    """A module, and what of it is kept."""

    module: Module
    statements: tuple[Statement, ...]
    uses: tuple[Use, ...]
    """What it uses of other modules and of itself, but not what facades pass to it."""
    passed: tuple[Use, ...]
    """What facades pass to it."""
    words: frozenset[str]
    """Every identifier in it, whatever it stands for."""
    lazy: frozenset[str]
    """Modules that it imports inside functions."""

    @classmethod
    def of(cls, folder: Folder, name: str, statements: list[Statement]) -> "Part":
        """Make the part of a module that is reached."""
        module = folder.modules[name]
        every = [node for s in statements for node in nodes(s.node)]
        uses = [use for s in statements for use in folder.uses(module, s)]
        prefixes = {id(use.node.value) for use in uses if use.prefix}  # type: ignore[attr-defined]
        words = {n.id for n in every if isinstance(n, ast.Name) and id(n) not in prefixes}
        words |= {node.arg for node in every if isinstance(node, ast.arg)}
        words |= {name for s in statements for name in s.defined}
        words |= {use.node.id for use in uses if use.quoted and isinstance(use.node, ast.Name)}
        bound = [of for s in statements for of in imported_within(module, s).values()]
        lazy = {of.module for b in bound if (of := folder.definition(b)) is not None}
        return cls(
            module,
            tuple(statements),
            tuple(use for use in uses if use.via not in FACADES),
            tuple(use for use in uses if use.via in FACADES),
            frozenset(words),
            frozenset(lazy),
        )

    @property
    def size(self) -> int:
        """How many lines it takes in a file."""
        return sum(s.last - s.first + 2 for s in self.statements)


@dataclass(frozen=True)
class File:
    """A file of the published folder: modules one after another, the one that names it last."""

    name: str
    parts: tuple[Part, ...]
    generated: bool = False
    facade: str = ""
    """The module of names passed on that it stands for."""
    exports: frozenset[Name] = frozenset()
    """What a facade passes on."""

    @cached_property
    def modules(self) -> frozenset[str]:
        """The dotted paths of what is in it."""
        return frozenset(part.module.name for part in self.parts)

    @property
    def size(self) -> int:
        """How many lines its parts take."""
        return sum(part.size for part in self.parts)

    @cached_property
    def wanted(self) -> frozenset[str]:
        """The modules whose names it uses, its own aside."""
        used = {use.of.module for part in self.parts for use in part.uses}
        return frozenset(used | {of.module for of in self.exports}) - self.modules

    @cached_property
    def needed(self) -> frozenset[str]:
        """The modules that it imports when it is imported itself."""
        used = {
            use.of.module for part in self.parts for use in part.uses
            if not use.quoted and use.of.module not in part.lazy
        }  # fmt: skip
        return frozenset(used | {of.module for of in self.exports}) - self.modules

    @cached_property
    def lazy(self) -> frozenset[str]:
        """Modules that functions in it import."""
        return frozenset().union(*(part.lazy for part in self.parts))

    @cached_property
    def quoted(self) -> frozenset[str]:
        """Names of other files that stand in annotations in quotes alone."""
        uses = [use for part in self.parts for use in part.uses]
        apart = {self.called(p, u) for p in self.parts for u in p.uses if not u.quoted}
        found = {u.of.name for u in uses if u.quoted and u.of.module not in self.modules}
        return frozenset(found - apart)

    @cached_property
    def bound(self) -> dict[str, Name]:
        """What each name at the top of the file stands for.

        Raises ``Clash`` where it would stand for two things.
        """
        found: dict[str, Name] = {}
        for part in self.parts:
            for name in (n for s in part.statements for n in s.defined):
                _bind(found, name, Name(part.module.name, name))
            for name in sorted(part.module.outside.keys() & part.words):
                _bind(found, name, Name("", name))
            for use in part.uses:
                if not use.prefix and use.of.module not in part.lazy:
                    _bind(found, self._called(part, use, found), use.of)
        for of in sorted(self.exports, key=lambda n: n.name):
            _bind(found, of.name, of)
        for part in self.parts:
            for use in part.uses:
                if use.prefix and use.of.module not in part.lazy:
                    _bind(found, self._called(part, use, found), use.of)
        return found

    def called(self, part: Part, use: Use) -> str:
        """Return what something is called in this file, which has no module as a prefix."""
        return self._called(part, use, self.bound)

    def _called(self, part: Part, use: Use, bound: dict[str, Name]) -> str:
        name, inside = use.of.name, use.of.module in self.modules
        if not use.prefix:
            assert isinstance(use.node, ast.Name)
            return name if inside else use.node.id
        local = name in part.words and not any(u.of == use.of and not u.prefix for u in part.uses)
        if not local and bound.get(name, use.of) == use.of:
            return name
        if inside:
            raise Clash(name)
        return f"{use.prefix}_{name}"


def _bind(bound: dict[str, Name], name: str, of: Name) -> None:
    if bound.setdefault(name, of) != of:
        raise Clash(name)


def grouped(files: dict[str, File]) -> dict[str, File]:
    """Write files into others that all their importers need; return the files that are left."""
    tried: set[tuple[str, str]] = set()
    names = {file.parts[0].module.name: name for name, file in files.items() if file.parts}
    while True:
        move = next((m for m in _moves(files) if m not in tried), None)
        if move is None:
            return _called_after_most(files, names)
        tried.add(move)
        small, large = move
        joined = _joined(files[small], files[large])
        try:
            joined.bound  # noqa: B018
        except Clash:
            continue
        files = {n: joined if n == large else f for n, f in files.items() if n != small}


def _called_after_most(files: dict[str, File], names: dict[str, str]) -> dict[str, File]:
    """Name files after the longest module in them, where nobody asks for another name."""
    found = {}
    for name, file in files.items():
        fixed = file.generated or file.facade or name in COMMANDS
        largest = max(file.parts, key=lambda part: part.size, default=None)
        called = name if fixed or largest is None else names[largest.module.name]
        found[called] = replace(file, name=called)
    return found


def _moves(files: dict[str, File]) -> Iterator[tuple[str, str]]:
    """Yield files, the smallest first, and others that they may be written into.

    Where several files import one, it goes into that of them which the others need anyway, so that
    imports never run in a circle.
    """
    place = {module: name for name, file in files.items() for module in file.modules}
    owners: dict[str, set[str]] = {name: set() for name in files}
    needs: dict[str, set[str]] = {}
    for name, file in files.items():
        needs[name] = {place[module] for module in file.needed}
        for module in file.wanted & place.keys():
            owners[place[module]].add(name)
    behind = {name: _behind(name, needs) for name in files}
    for small in sorted(files, key=lambda n: (files[n].size, n)):
        for large in sorted(owners[small]):
            others = owners[small] - {large}
            needed = all(large in behind[other] for other in others)
            if needed and _foldable(files, files[small], files[large]):
                yield small, large
    yield from _short(files, needs, owners, behind)


def _short(
    files: dict[str, File], needs: dict[str, set[str]], owners: dict[str, set[str]],
    behind: dict[str, set[str]],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Yield short files, the shortest first, and others that they import or are imported by.

    Not where a third file lies between the two, so that imports would run in a circle.
    """
    for small in sorted(files, key=lambda n: (files[n].size, n)):
        if files[small].size > SHORT:
            return
        near = (needs[small] | owners[small]) - {small}
        for large in sorted(near, key=lambda n: (files[n].size, n)):
            between = any(large in behind[n] for n in needs[small] - {large})
            between = between or any(small in behind[n] for n in needs[large] - {small})
            if not between and _foldable(files, files[small], files[large]):
                yield small, large


def _behind(name: str, needs: dict[str, set[str]]) -> set[str]:
    """Return all that a file imports, others between them."""
    found: set[str] = set()
    todo = [name]
    while todo:
        new = needs[todo.pop()] - found
        found |= new
        todo += new
    return found


def _foldable(files: dict[str, File], small: File, large: File) -> bool:
    """Return whether a file may be written into another by its place in the folder and its size."""
    if small.generated or small.facade or large.generated or small.name in COMMANDS:
        return False
    if any(small.modules & file.lazy for file in files.values()):
        return False
    return bool(large.facade) or small.size + large.size <= LONGEST


def _joined(small: File, large: File) -> File:
    """Join two files into one, its parts in an order in which each finds what it needs."""
    parts = {part.module.name: part for part in (*small.parts, *large.parts)}
    ordered: dict[str, Part] = {}

    def place(name: str) -> None:
        if name in ordered or name not in parts:
            return
        part = parts.pop(name)
        for use in part.uses:
            place(use.of.module)
        ordered[name] = part

    for name in list(parts):
        place(name)
    return replace(large, parts=tuple(ordered.values()))
