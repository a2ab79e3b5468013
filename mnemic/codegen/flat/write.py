"""A file of the published folder as text: its imports, then what is kept of its modules."""

import ast
from collections.abc import Iterator, Mapping

from mnemic.codegen.flat.groups import FACADES, File, Part
from mnemic.codegen.flat.modules import Statement
from mnemic.codegen.flat.nodes import nodes

WIDTH = 100


def text_of(file: File, place: Mapping[str, str]) -> str:
    """Write the text of a file; ``place`` tells in which file each module lies."""
    body = "".join(_part(file, part, place) for part in file.parts)
    imports = "\n".join(part for part in (_outside(file), _inside(file, place)) if part)
    head = _head(file)
    return f"{head}\n{imports}{body}" if imports else head + body


def _head(file: File) -> str:
    """Write the docstring, that of the module after which the file is called."""
    named = _named(file)
    if named is None:
        return DOCSTRINGS[FACADES[file.facade]]
    return named.module.docstring + ("# ruff: noqa\n" if file.generated else "")


DOCSTRINGS = {
    "ops": '"""What the generated forms call, in PyTorch."""\n',
    "tiles": '"""What the generated kernels call, in Triton, on tiles."""\n',
}


# -- imports -----------------------------------------------------------------------------------


def _outside(file: File) -> str:
    """Write the imports of other packages, of which something is used."""
    lines: set[tuple[bool, str, str]] = set()
    grouped: dict[str, set[str]] = {}
    for part in file.parts:
        for name in part.module.outside.keys() & part.words:
            node = part.module.outside[name]
            for alias in node.names:  # type: ignore[attr-defined]
                if (alias.asname or alias.name).partition(".")[0] != name:
                    continue
                renamed = f" as {alias.asname}" if alias.asname else ""
                if isinstance(node, ast.ImportFrom):
                    grouped.setdefault(node.module or "", set()).add(alias.name + renamed)
                else:
                    lines.add((False, alias.name, f"import {alias.name}{renamed}"))
    if file.quoted:
        grouped.setdefault("typing", set()).add("TYPE_CHECKING")
    lines |= {(True, m, _wrapped(f"from {m} import ", sorted(n))) for m, n in grouped.items()}
    ours = {"torch", "triton"}
    first = [line for line in sorted(lines) if line[1].partition(".")[0] not in ours]
    second = [line for line in sorted(lines) if line[1].partition(".")[0] in ours]
    blocks = ["".join(f"{line[2]}\n" for line in block) for block in (first, second) if block]
    return "\n".join(blocks)


def _inside(file: File, place: Mapping[str, str]) -> str:
    """Write the imports of other files of the folder, those of types alone last."""
    whole: set[str] = set()
    named: dict[str, set[str]] = {}
    types: dict[str, set[str]] = {}
    for name, of in file.bound.items():
        if not of.module or of.module in file.modules:
            continue
        if not of.name:
            whole.add(place[of.module] + (f" as {name}" if name != place[of.module] else ""))
            continue
        renamed = f" as {name}" if name != of.name or file.facade else ""
        into = types if name in file.quoted else named
        into.setdefault(place[of.module], set()).add(of.name + renamed)
    for part in file.parts:
        for use in part.passed:
            if use.prefix:
                whole.add(FACADES[use.via])
            else:
                named.setdefault(FACADES[use.via], set()).add(use.of.name)
    lines = [_wrapped("from . import ", sorted(whole))] if whole else []
    lines += [_wrapped(f"from .{f} import ", sorted(names)) for f, names in sorted(named.items())]
    if types:
        lines += ["", "if TYPE_CHECKING:"]
        lines += [f"    from .{f} import {', '.join(sorted(n))}" for f, n in sorted(types.items())]
    return "".join(f"{line}\n" for line in lines)


def _wrapped(start: str, names: list[str]) -> str:
    """Write an import on one line, or on as many as it takes."""
    line = start + ", ".join(names)
    if len(line) <= WIDTH:
        return line
    rows, row = [], "   "
    for name in names:
        if len(row) + len(name) + 2 > WIDTH:
            rows.append(row)
            row = "   "
        row += f" {name},"
    return "\n".join([f"{start}(", *rows, row, ")"])


# -- statements --------------------------------------------------------------------------------


def _part(file: File, part: Part, place: Mapping[str, str]) -> str:
    """Write what is kept of a module, as it stands there but for names of other modules."""
    lines = _edited(file, part, place)
    found, before = [], None
    for statement in part.statements:
        text = "".join(lines[statement.first : statement.last])
        found.append("\n" * _gap(before, statement) + text)
        before = statement
    return _heading(file, part) + "".join(found)


def _heading(file: File, part: Part) -> str:
    """Write what a part is about, where it is not the one that its file is called after."""
    told = part.module.docstring.strip().strip('"').partition("\n")[0].rstrip(".")
    if part is _named(file) or not told:
        return ""
    rule = "-" * max(3, WIDTH - 8 - len(told))
    return f"\n\n# -- {told} {rule}\n"


def _named(file: File) -> Part | None:
    """Return the part after which a file is called; a facade has none."""
    if file.facade:
        return None
    own = (part for part in file.parts if part.module.name.endswith(file.name))
    return next(own, file.parts[-1])


def _gap(before: Statement | None, statement: Statement) -> int:
    """Return how many blank lines precede a statement: two around functions and classes."""
    if before is None or statement.definition or before.definition:
        return 2
    if before.last == statement.first:
        return 0
    return 1


def _edited(file: File, part: Part, place: Mapping[str, str]) -> list[str]:
    """Return a module's lines, with names as the file has them and imports in functions flat."""
    edits: list[tuple[int, int, int, str]] = []
    for use in part.uses:
        if use.quoted or use.of.module in part.lazy or not use.of.name:
            continue
        name = file.called(part, use)
        written = use.node.id if isinstance(use.node, ast.Name) else None
        if name != written:
            edits.append((*_span(use.node), name))
    for statement in part.statements:
        edits += _flat_imports(part, statement, place)
    lines = list(part.module.lines)
    for line, start, end, text in sorted(edits, reverse=True):
        raw = lines[line].encode()
        lines[line] = (raw[:start] + text.encode() + raw[end:]).decode()
    return lines


def _span(node: ast.AST) -> tuple[int, int, int]:
    """Return the line of a node, and where in it the node's bytes begin and end."""
    assert node.lineno == node.end_lineno  # type: ignore[attr-defined]
    return node.lineno - 1, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]


def _flat_imports(
    part: Part, statement: Statement, place: Mapping[str, str]
) -> Iterator[tuple[int, int, int, str]]:
    """Yield changes by which functions import from the files in which things now lie."""
    for node in nodes(statement.node):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        path = part.module.resolved(node)
        names = ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in node.names)
        if path in place:
            yield (*_span(node), f"from .{place[path]} import {names}")
            continue
        (alias,) = node.names
        flat = place[f"{path}.{alias.name}" if path else alias.name]
        bound = alias.asname or alias.name
        renamed = f" as {bound}" if flat != bound else ""
        yield (*_span(node), f"from . import {flat}{renamed}")
