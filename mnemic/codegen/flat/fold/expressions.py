"""Expressions evaluated as far as what the generated modules declare tells their values."""

import ast
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from mnemic.codegen.flat.fold.classes import Classes
from mnemic.codegen.flat.fold.facts import Frame
from mnemic.codegen.flat.fold.values import (
    Constant,
    Each,
    Fresh,
    Full,
    Hollow,
    Items,
    Value,
    constant,
    is_none,
    joined,
    plain,
    truth,
)  # fmt: skip
from mnemic.codegen.flat.modules import Name

OPERATORS: Final[Mapping[type[ast.AST], Callable[..., object]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Add: operator.add, ast.Sub: operator.sub,
    ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.In: lambda x, y: x in y, ast.NotIn: lambda x, y: x not in y,
    ast.USub: operator.neg, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
}  # fmt: skip


class Expressions:
    """What is known of expressions in a folder, calls and attributes aside."""

    def __init__(self, classes: Classes, own: set[str]) -> None:
        self.classes, self.own = classes, own
        self.globals: dict[Name, Value | None] = {}
        self.methods = {
            kind: getattr(self, f"_{kind.__name__.lower()}", None)
            for kind in ast.expr.__subclasses__()
        }
        self.methods[ast.Call] = self.call

    def call(self, node: ast.Call, frame: Frame) -> Value | None:
        """Return what is known of a call's result."""
        raise NotImplementedError

    def member(self, base: Value | None, name: str, depth: int) -> Value | None:
        """Return what is known of an attribute."""
        raise NotImplementedError

    def value(self, node: ast.expr, frame: Frame) -> Value | None:
        """Return what is known of an expression's value."""
        if node not in frame.known:
            method = self.methods[type(node)]
            frame.known[node] = None if method is None else method(node, frame)
        return frame.known[node]

    def truth(self, node: ast.expr, frame: Frame) -> bool | None:
        """Return whether an expression counts as true, where that is known."""
        return truth(self.value(node, frame))

    def _constant(self, node: ast.Constant, frame: Frame) -> Value:
        return Constant(node.value)

    def _joinedstr(self, node: ast.JoinedStr, frame: Frame) -> Value:
        return Value()

    def _lambda(self, node: ast.Lambda, frame: Frame) -> Value:
        return Full()

    def _name(self, node: ast.Name, frame: Frame) -> Value | None:
        if node.id in frame.names:
            return frame.names[node.id]
        of = self.classes.resolved(frame.module, node)
        return None if of is None or not of.name else self._defined(of)

    def _defined(self, of: Name) -> Value | None:
        """Evaluate what a module defines at its top: function, class, or declared instance."""
        module = self.classes.folder.modules[of.module]
        found = [s.node for s in module.statements if of.name in s.defined]
        if len(found) != 1:
            return None
        if isinstance(found[0], ast.FunctionDef | ast.ClassDef):
            return Full()
        if not isinstance(found[0], ast.Assign) or of.module not in self.own:
            return None
        if of not in self.globals:
            self.globals[of] = None
            self.globals[of] = self.value(found[0].value, Frame(module))
        return self.globals[of]

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Value | None:
        if isinstance(node.value, ast.Name) and node.value.id not in frame.names:
            of = self.classes.resolved(frame.module, node)
            if of is not None:
                return self._defined(of)
        return self.member(self.value(node.value, frame), node.attr, frame.depth)

    def _tuple(self, node: ast.Tuple, frame: Frame) -> Value | None:
        items = self._items(node.elts, frame)
        return None if items is None else Items(items)

    def _list(self, node: ast.List | ast.Set, frame: Frame) -> Value | None:
        items = self._items(node.elts, frame)
        return None if items is None else Fresh(items)

    _set = _list

    def _dict(self, node: ast.Dict, frame: Frame) -> Value:
        return Value() if node.keys else Fresh(())

    def _items(self, nodes: list[ast.expr], frame: Frame) -> tuple[Value | None, ...] | None:
        found: list[Value | None] = []
        for node in nodes:
            if not isinstance(node, ast.Starred):
                found.append(self.value(node, frame))
                continue
            inner = self.value(node.value, frame)
            if not isinstance(inner, Items):
                return None
            found += inner.items
        return tuple(found)

    def _boolop(self, node: ast.BoolOp, frame: Frame) -> Value | None:
        stops = isinstance(node.op, ast.Or)
        values = [self.value(x, frame) for x in node.values]
        left: list[Value | None] = []
        for value in values:
            if truth(value) is stops:
                return value if not left else Full() if stops else Hollow()
            if truth(value) is None:
                left.append(value)
        return values[-1] if not left else None

    def _unaryop(self, node: ast.UnaryOp, frame: Frame) -> Value | None:
        inner = self.value(node.operand, frame)
        if isinstance(node.op, ast.Not):
            found = truth(inner)
            return None if found is None else Constant(not found)
        with suppress(LookupError, TypeError):
            return constant(OPERATORS[type(node.op)](plain(inner)))
        return None

    def _binop(self, node: ast.BinOp, frame: Frame) -> Value | None:
        left, right = self.value(node.left, frame), self.value(node.right, frame)
        if isinstance(left, Fresh) or isinstance(right, Fresh):
            return None
        if isinstance(node.op, ast.Add) and isinstance(left, Items) and isinstance(right, Items):
            return Items(left.items + right.items)
        with suppress(LookupError, TypeError, ZeroDivisionError):
            return constant(OPERATORS[type(node.op)](plain(left), plain(right)))
        return None

    def _compare(self, node: ast.Compare, frame: Frame) -> Value | None:
        if len(node.ops) > 1:
            return None
        left, right = (self.value(x, frame) for x in (node.left, node.comparators[0]))
        if isinstance(node.ops[0], ast.Is | ast.IsNot):
            return self._same(left, right, isinstance(node.ops[0], ast.Is))
        if isinstance(node.ops[0], ast.In | ast.NotIn) and truth(right) is False:
            return Constant(isinstance(node.ops[0], ast.NotIn))
        with suppress(LookupError, TypeError):
            found = OPERATORS[type(node.ops[0])](plain(left), plain(right))
            return Constant(bool(found))
        return None

    @staticmethod
    def _same(left: Value | None, right: Value | None, same: bool) -> Value | None:
        """Return whether one of two values is the other; known where one is ``None``."""
        found = [is_none(left), is_none(right)]
        if None in found or not any(found):
            return None
        return Constant((found[0] == found[1]) is same)

    def _ifexp(self, node: ast.IfExp, frame: Frame) -> Value | None:
        test = self.truth(node.test, frame)
        if test is None:
            return joined([self.value(node.body, frame), self.value(node.orelse, frame)])
        return self.value(node.body if test else node.orelse, frame)

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Value | None:
        base = self.value(node.value, frame)
        with suppress(LookupError, TypeError):
            place = plain(self.value(node.slice, frame))
            if isinstance(base, Items) and isinstance(place, int):
                return base.items[place]
        return None

    # -- comprehensions ---------------------------------------------------------------------

    def _listcomp(self, node: ast.ListComp | ast.SetComp, frame: Frame) -> Value | None:
        found = self._generated(node, frame)
        return Fresh(found.items) if isinstance(found, Items) else None

    _setcomp = _listcomp

    def _dictcomp(self, node: ast.DictComp, frame: Frame) -> Value | None:
        empty = self.empty(node.generators, frame)
        return Fresh(()) if empty else Value()

    def _generatorexp(self, node: ast.GeneratorExp, frame: Frame) -> Value | None:
        return self._generated(node, frame)

    def _generated(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame
    ) -> Value | None:
        """Evaluate a comprehension: to a tuple of items, or to each of an unknown number."""
        frames = self._turns(node.generators, frame)
        if frames is None:
            return Each(None)
        certain, places = frames
        items = [self.value(node.elt, place) for place in places]
        if certain or not items:
            return Items(tuple(items))
        return Each(joined(items))

    def empty(self, generators: list[ast.comprehension], frame: Frame) -> bool:
        """Return whether a comprehension has no turn."""
        frames = self._turns(generators, frame)
        return frames is not None and not frames[1]

    def _turns(
        self, generators: list[ast.comprehension], frame: Frame
    ) -> tuple[bool, list[Frame]] | None:
        """Return whether a comprehension's turns are certain, and their frames, or ``None``."""
        certain, places = True, [frame]
        for generator in generators:
            inner = []
            for place in places:
                items = self.items(self.value(generator.iter, place))
                if items is None:
                    return None
                exact, values = items
                certain = certain and exact
                for value in values:
                    bound = place.with_names(self.bound(generator.target, value))
                    tests = [self.truth(test, bound) for test in generator.ifs]
                    if False in tests:
                        continue
                    certain = certain and None not in tests
                    inner.append(bound)
            places = inner
        return certain, places

    @staticmethod
    def items(value: Value | None) -> tuple[bool, tuple[Value | None, ...]] | None:
        """Return whether a loop's turns are certain, and what they go through; else ``None``."""
        match value:
            case Items(items):
                return True, items
            case Each(item):
                return False, (item,)
            case Constant(str() as text):
                return True, tuple(Constant(x) for x in text)
        return None

    def bound(self, target: ast.expr, value: Value | None) -> dict[str, Value | None]:
        """Return what the names that an assignment binds stand for."""
        if isinstance(target, ast.Name):
            return {target.id: None if isinstance(value, Fresh) else value}
        if isinstance(target, ast.Tuple | ast.List):
            parts: list[Value | None] = [None] * len(target.elts)
            starred = any(isinstance(x, ast.Starred) for x in target.elts)
            if isinstance(value, Items) and len(value.items) == len(parts) and not starred:
                parts = list(value.items)
            found: dict[str, Value | None] = {}
            for inner, part in zip(target.elts, parts, strict=True):
                found |= self.bound(inner, part)
            return found
        return self.bound(target.value, None) if isinstance(target, ast.Starred) else {}
