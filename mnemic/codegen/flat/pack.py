"""Long lists of parameters, one a line in generated kernels, on as few lines as they take."""

import ast

from mnemic.codegen.flat.fold.edits import Text

WIDTH = 100

MANY = 8
"""Parameters from which on a list is packed."""


def packed(source: str) -> str:
    """Put parameters of a module's functions side by side, if they stood one below another."""
    text = Text(source)
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            _pack(text, node)
    return text.changed()


def _pack(text: Text, node: ast.FunctionDef) -> None:
    """Pack the parameters of a function that has nothing but names and annotations."""
    told = node.args
    arguments = told.args
    plain = not (told.defaults or told.kwonlyargs or told.vararg or told.kwarg or told.posonlyargs)
    if not plain or len(arguments) < MANY:
        return
    first, last = arguments[0].lineno, arguments[-1].lineno
    if last - first + 1 != len(arguments) or b"#" in b"".join(text.lines[first - 1 : last]):
        return
    rows, row = [], "   "
    for word in (ast.unparse(x) for x in arguments):
        if len(row) + len(word) + 2 > WIDTH:
            rows.append(row)
            row = "   "
        row += f" {word},"
    block = "".join(f"{line}\n" for line in (*rows, row))
    text.edits.append((text.starts[first - 1], text.starts[last], block.encode()))
    end = text.lines[last].rstrip()
    if end.endswith(b":"):
        text.edits.append((text.starts[last], text.starts[last + 1], end + b"  # fmt: skip\n"))
