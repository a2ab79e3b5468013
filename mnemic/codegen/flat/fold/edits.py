"""Changes to a module's text, by places in its bytes."""

import ast
from dataclasses import dataclass, field

INDENT = 4


@dataclass
class Text:
    """A module's text, and what is to change in it."""

    source: str
    edits: list[tuple[int, int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.raw = self.source.encode()
        self.lines = self.raw.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where an expression, or a statement without decorators, begins and ends."""
        first: int = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end: int = self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return first, end

    def of(self, node: ast.AST) -> bytes:
        """Return the text of an expression."""
        first, end = self.span(node)
        return self.raw[first:end]

    def first_line(self, node: ast.stmt) -> int:
        """Return a statement's first line, decorators and comments right before it included."""
        decorators = getattr(node, "decorator_list", ())
        line: int = min([node.lineno, *(d.lineno for d in decorators)]) - 1
        while line and self.lines[line - 1].lstrip().startswith(b"#"):
            if self.lines[line - 1].lstrip().startswith(b"# --"):
                break
            line -= 1
        return line

    def replace(self, node: ast.AST, text: bytes) -> None:
        """Put something in the place of an expression."""
        self.edits.append((*self.span(node), text))

    def remove(self, node: ast.stmt) -> None:
        """Take a statement out, whole lines of it."""
        assert node.end_lineno is not None
        first = self.starts[self.first_line(node)]
        self.edits.append((first, self.starts[node.end_lineno], b""))

    def block(self, nodes: list[ast.stmt], column: int) -> bytes:
        """Return the lines of a block's statements, moved to a column."""
        last = nodes[-1].end_lineno
        assert last is not None
        move = nodes[0].col_offset - column
        lines = self.lines[self.first_line(nodes[0]) : last]
        return b"".join(line[move:] if line[:move].isspace() else line for line in lines)

    def changed(self) -> str:
        """Return the text with all changes; of two that overlap the earlier, or wider, one."""
        found, at = [], 0
        for first, end, text in sorted(self.edits, key=lambda e: (e[0], -e[1])):
            if first >= at:
                found += [self.raw[at:first], text]
                at = end
        return b"".join([*found, self.raw[at:]]).decode()
