"""Statements whose outcome is known, written as that outcome."""

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache

from mnemic.codegen.flat.fold.attributes import Evaluator
from mnemic.codegen.flat.fold.facts import Frame
from mnemic.codegen.flat.fold.harmless import (
    does_nothing,
    imported,
    only_read,
    passes,
    read,
)  # fmt: skip
from mnemic.codegen.flat.fold.outcomes import Outcomes
from mnemic.codegen.flat.fold.values import Fresh, Items, Kind, Value, joined
from mnemic.codegen.flat.modules import Module, Name
from mnemic.codegen.flat.nodes import children, nodes

ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Folding(Outcomes):
    """One module, its outcomes written into ``text``."""

    def __init__(self, evaluator: Evaluator, module: Module) -> None:
        super().__init__(evaluator, module)
        self.alone = {
            id(block[0])
            for parent in nodes(module.tree)
            for block in (getattr(parent, "body", None), getattr(parent, "finalbody", None))
            if isinstance(block, list) and len(block) == 1
        }
        """Statements that are all that there is in their block."""

    def run(self) -> str:
        """Return the module's text with what is known written out."""
        for statement in self.module.statements:
            node = statement.node
            if isinstance(node, ast.FunctionDef):
                self._function(node, Frame(self.module), None)
            elif isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef):
                        of = Name(self.module.name, node.name)
                        self._function(inner, Frame(self.module), of)
        return self.text.changed()

    # -- names ------------------------------------------------------------------------------

    def _function(self, node: ast.FunctionDef, frame: Frame, of: Name | None) -> None:
        names = self.evaluator.arguments(node, self.module)
        static = any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list
        )
        classed = any(
            isinstance(d, ast.Name) and d.id == "classmethod" for d in node.decorator_list
        )
        if of is not None and not static and not classed and node.args.args:
            names[node.args.args[0].arg] = Kind(of)
        frame = frame.with_names(names)
        counts = _counts(node)
        stored = {name: None for name, count in counts.items() if count and name not in names}
        frame = frame.with_names(stored)
        again = {n: self._still(n, kind, node, frame) for n, kind in names.items() if counts.get(n)}
        frame = frame.with_names(again)
        once = {n for n, count in counts.items() if count == 1 and n not in names}
        self._block(node.body, frame, once, node)

    def _still(
        self, name: str, kind: Value | None, function: ast.FunctionDef, frame: Frame
    ) -> Value | None:
        """Return the class of a parameter bound again to its instances alone, or ``None``."""
        found = [kind]
        for node in nodes(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=bound)], value=value) if bound == name:
                    found.append(self.evaluator.value(value, frame))
        stores = sum(
            isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
            for n in nodes(function)
        )
        same = joined(found)
        return same if isinstance(same, Kind) and stores == len(found) - 1 else None

    def _block(self, body: list[ast.stmt], frame: Frame, once: set[str], within: ast.AST) -> Frame:
        """Go through statements; those behind an end of the block are left out."""
        for place, node in enumerate(body):
            frame = self._statement(node, frame, once, within)
            if self._ends(node, frame) and place + 1 < len(body):
                for rest in body[place + 1 :]:
                    self.text.remove(rest)
                return frame
        return frame

    def _ends(self, node: ast.stmt, frame: Frame) -> bool:
        """Return whether nothing behind a statement is reached."""
        if isinstance(node, ENDS):
            return True
        if not isinstance(node, ast.If):
            return False
        test = self.evaluator.truth(node.test, frame)
        ways = [node.body] if test else [node.orelse] if test is False else [node.body, node.orelse]
        return all(bool(way) and any(self._ends(x, frame) for x in way) for way in ways)

    # -- statements -------------------------------------------------------------------------

    def _statement(self, node: ast.stmt, frame: Frame, once: set[str], within: ast.AST) -> Frame:
        """Go through a statement; return the frame behind it."""
        if self._needless(node, frame, within):
            self._removed(node)
            return frame
        match node:
            case ast.FunctionDef():
                self._function(node, frame, None)
                return frame
            case ast.If():
                return self._if(node, frame, once, within)
            case ast.For():
                return self._for(node, frame, once, within)
            case ast.With() | ast.While() | ast.Try():
                return self._blocks(node, frame, once, within)
        for inner in children(node):
            if isinstance(inner, ast.expr):
                self.expressions(inner, frame)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            value = self.evaluator.value(node.value, frame)
            if isinstance(value, Fresh) and only_read(node.targets[0], within):
                value = Items(value.items)
            found = self.evaluator.bound(node.targets[0], value)
            frame = frame.with_names({n: v for n, v in found.items() if n in once})
        return frame

    def _needless(self, node: ast.stmt, frame: Frame, within: ast.AST) -> bool:
        """Return whether nothing is missing without a statement."""
        match node:
            case ast.Assert(test=test):
                return self.known(test, frame)
            case ast.ImportFrom():
                return not imported(node) & read(within)
            case ast.Expr(value=ast.Call() as call):
                return self._idle(call, frame) or self.harmless(call, frame)
            case ast.AugAssign(value=value):
                return self._nothing(value, frame)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return name not in read(within) and self.harmless(value, frame)
        return False

    def _blocks(
        self, node: ast.With | ast.While | ast.Try, frame: Frame, once: set[str], within: ast.AST
    ) -> Frame:
        """Go through the blocks of a statement."""
        if isinstance(node, ast.Try):
            for block in (node.body, *(h.body for h in node.handlers), node.finalbody):
                frame = self._block(block, frame, once, within)
            return frame
        told = [node.test] if isinstance(node, ast.While) else [x.context_expr for x in node.items]
        for inner in told:
            self.expressions(inner, frame)
        return self._block(node.body, frame, once, within)

    def _idle(self, call: ast.Call, frame: Frame) -> bool:
        """Return whether a call whose result nobody reads does nothing."""
        found = self.evaluator.function(call, frame)
        rest = [*call.args, *(k.value for k in call.keywords)]
        return (
            found is not None and does_nothing(found[0])
            and all(self.harmless(x, frame) for x in rest)
        )  # fmt: skip

    def _nothing(self, value: ast.expr, frame: Frame) -> bool:
        """Return whether an empty list or mapping is added."""
        found = self.evaluator.value(value, frame)
        return isinstance(found, Items) and not found.items and self.harmless(value, frame)

    def _if(self, node: ast.If, frame: Frame, once: set[str], within: ast.AST) -> Frame:
        test = self.evaluator.truth(node.test, frame)
        if test is not None and self.harmless(node.test, frame):
            self._taken(node, test)
            return self._assigned(node.body if test else node.orelse, frame, once)
        if passes(node.body) and not node.orelse and self.harmless(node.test, frame):
            self._removed(node)
            return frame
        self.expressions(node.test, frame)
        left = self._block(node.body, frame, once, within)
        right = self._block(node.orelse, frame, once, within)
        return frame.with_names(_either(left.names, right.names))

    def _assigned(self, body: list[ast.stmt], frame: Frame, once: set[str]) -> Frame:
        """Return the frame behind a block that stays; the next round goes through the block."""
        for node in body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                value = self.evaluator.value(node.value, frame)
                found = self.evaluator.bound(node.targets[0], value)
                frame = frame.with_names({n: v for n, v in found.items() if n in once})
        return frame

    def _for(self, node: ast.For, frame: Frame, once: set[str], within: ast.AST) -> Frame:
        items = self.evaluator.items(self.evaluator.value(node.iter, frame))
        nothing = items is not None and not items[1]
        if (nothing or passes(node.body)) and not node.orelse and self.harmless(node.iter, frame):
            self._removed(node)
            return frame
        self.expressions(node.iter, frame)
        value = joined(items[1]) if items is not None and items[1] else None
        found = self.evaluator.bound(node.target, value)
        frame = frame.with_names({n: v for n, v in found.items() if n in once})
        return self._block(node.body, frame, once, within)

    def _removed(self, node: ast.stmt) -> None:
        """Take a statement out; ``pass`` stands in a block left empty until the next round."""
        if self._alone(node):
            column = node.col_offset
            first, last = self.text.first_line(node), node.end_lineno
            assert last is not None
            starts = self.text.starts
            self.text.edits.append((starts[first], starts[last], b" " * column + b"pass\n"))
        elif self._elif(node):
            self._cut(node, b"")
        else:
            self.text.remove(node)

    def _alone(self, node: ast.stmt) -> bool:
        """Return whether a statement is all that there is in its block."""
        return id(node) in self.alone and not self._elif(node)

    def _elif(self, node: ast.stmt) -> bool:
        first, _ = self.text.span(node)
        return self.text.raw[first : first + 4] == b"elif"

    def _taken(self, node: ast.If, test: bool) -> None:
        """Write the way that an ``if`` takes, in its place."""
        column = node.col_offset
        if test and self._elif(node):
            self._cut(node, b" " * column + b"else:\n" + self.text.block(node.body, column + 4))
        elif test:
            self._cut(node, self.text.block(node.body, column))
        elif not node.orelse:
            self._removed(node)
        elif self._elif(node.orelse[0]):
            rest = self.text.block(node.orelse, column)
            word = b"elif" if self._elif(node) else b"if"
            self._cut(node, b" " * column + rest.lstrip().replace(b"elif", word, 1))
        elif self._elif(node):
            self._cut(node, b" " * column + b"else:\n" + self.text.block(node.orelse, column + 4))
        else:
            self._cut(node, self.text.block(node.orelse, column))

    def _cut(self, node: ast.stmt, text: bytes) -> None:
        """Put lines in the place of a statement's."""
        assert node.end_lineno is not None
        first = self.text.starts[node.lineno - 1]
        self.text.edits.append((first, self.text.starts[node.end_lineno], text))


@lru_cache(maxsize=8192)
def _counts(function: ast.FunctionDef) -> Mapping[str, int]:
    """Count how often a function binds each name, in all that is written in it."""
    found: dict[str, int] = {}
    for node in nodes(function):
        names: Iterator[str] = iter(())
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names = iter((node.id,))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node is not function:
            names = iter((node.name,))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = ((a.asname or a.name).partition(".")[0] for a in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names = iter((node.name,))
        elif isinstance(node, ast.Global | ast.Nonlocal):
            names = iter((*node.names, *node.names))
        for name in names:
            found[name] = found.get(name, 0) + 1
    return found


def _either(
    left: Mapping[str, Value | None], right: Mapping[str, Value | None]
) -> dict[str, Value | None]:
    """Join names after two ways; of a name that one way alone binds, keep what it is there."""
    found: dict[str, Value | None] = {}
    for name in left.keys() | right.keys():
        a, b = left.get(name), right.get(name)
        found[name] = a if b is None else b if a is None else joined([a, b])
    return found
