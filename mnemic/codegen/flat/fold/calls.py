"""Calls of what a folder defines, followed through the bodies of its functions."""

import ast
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from mnemic.codegen.flat.fold.classes import Class, Classes, Function
from mnemic.codegen.flat.fold.expressions import Expressions
from mnemic.codegen.flat.fold.facts import (
    DEEPEST,
    Frame,
    bindings,
    generates,
    parameters,
    parsed,
)  # fmt: skip
from mnemic.codegen.flat.fold.values import (
    Constant,
    Each,
    Fresh,
    Items,
    Kind,
    Made,
    Value,
    constant,
    joined,
    plain,
    truth,
)  # fmt: skip
from mnemic.codegen.flat.modules import Module, Name

PURE: Final[Mapping[str, Callable[..., object]]] = {
    "set": frozenset, "frozenset": frozenset, "len": len, "bool": bool, "int": int, "min": min,
    "max": max, "sum": sum,
}  # fmt: skip
"""Functions of Python that are called on constants."""

OF_TEXT: Final = ("startswith", "endswith", "removeprefix", "removesuffix", "partition")


class Calls(Expressions):
    """What is known of calls in a folder."""

    def __init__(self, classes: Classes, own: set[str]) -> None:
        super().__init__(classes, own)
        self.calls: dict[Hashable, Value | None] = {}

    def declares(self, of: Name, frame: Frame) -> bool:
        """Return whether a call of a class in a frame makes an instance that is told apart."""
        raise NotImplementedError

    def instance(self, of: Name, node: ast.Call, frame: Frame) -> Made:
        """Return what a call of a dataclass makes."""
        raise NotImplementedError

    def only_one(self, of: Name, name: str) -> Class | None:
        """Return the class that defines an attribute, where no subclass defines another."""
        raise NotImplementedError

    def call(self, node: ast.Call, frame: Frame) -> Value | None:
        if frame.depth >= DEEPEST:
            return None
        if isinstance(node.func, ast.Name) and node.func.id not in frame.names:
            of = self.classes.resolved(frame.module, node.func)
            return self._python(node, frame) if of is None else self._of_folder(of, node, frame)
        if isinstance(node.func, ast.Attribute):
            of = self.classes.resolved(frame.module, node.func)
            if of is not None and not self._local(node.func, frame):
                return self._of_folder(of, node, frame)
            return self._method(node.func, node, frame)
        return None

    @staticmethod
    def _local(node: ast.Attribute, frame: Frame) -> bool:
        return isinstance(node.value, ast.Name) and node.value.id in frame.names

    def _python(self, node: ast.Call, frame: Frame) -> Value | None:
        """Evaluate a call of one of Python's own functions."""
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if node.keywords or any(isinstance(x, ast.Starred) for x in node.args):
            return None
        values = [self.value(x, frame) for x in node.args]
        if name in ("any", "all") and len(values) == 1:
            return self._every(values[0], stops=name == "any")
        if name == "tuple" and len(values) == 1:
            if isinstance(values[0], Items):
                return Items(values[0].items)
            return values[0] if isinstance(values[0], Each) else None
        if name in PURE:
            with suppress(LookupError, TypeError, ValueError):
                if name == "len" and isinstance(values[0], Items):
                    return Constant(len(values[0].items))
                return constant(PURE[name](*(plain(x) for x in values)))
        return None

    def _every(self, value: Value | None, *, stops: bool) -> Value | None:
        """Evaluate ``any`` (which stops at what is true) or ``all`` of some items."""
        items = self.items(value)
        if items is None:
            return None
        exact, values = items
        found = [truth(x) for x in values]
        if stops in found and exact:
            return Constant(stops)
        return Constant(not stops) if all(x is (not stops) for x in found) else None

    def _of_folder(self, of: Name, node: ast.Call, frame: Frame) -> Value | None:
        """Evaluate a call of a function or a class of the folder."""
        if of in self.classes.known:
            return self.instance(of, node, frame) if self.declares(of, frame) else Kind(of)
        module = self.classes.folder.modules[of.module]
        for statement in module.statements:
            if of.name in statement.defined and isinstance(statement.node, Function):
                return self._called(statement.node, module, node, frame, ())
        return None

    def _method(self, function: ast.Attribute, node: ast.Call, frame: Frame) -> Value | None:
        base = self.value(function.value, frame)
        if isinstance(base, Constant) and isinstance(base.value, str):
            if function.attr in OF_TEXT and not node.keywords:
                with suppress(LookupError, TypeError):
                    arguments = [plain(self.value(x, frame)) for x in node.args]
                    return constant(getattr(base.value, function.attr)(*arguments))
            return None
        if isinstance(base, Items) and function.attr in ("items", "values", "keys"):
            return base if not base.items else None
        if not isinstance(base, Kind | Made):
            return None
        found = self.only_one(base.of, function.attr)
        if found is None or function.attr not in found.functions:
            return None
        definition = found.functions[function.attr]
        if found.protocol:
            return self.annotation(definition.returns, found.module)
        if definition.decorator_list:
            return None
        return self._called(definition, found.module, node, frame, (base,))

    def function(self, node: ast.Call, frame: Frame) -> tuple[Function, list[str]] | None:
        """Return the function of the folder that a call runs, and its parameters but ``self``."""
        if isinstance(node.func, ast.Attribute) and not self._of_module(node.func, frame):
            base = self.value(node.func.value, frame)
            if not isinstance(base, Kind | Made):
                return None
            found = self.only_one(base.of, node.func.attr)
            if found is None or node.func.attr not in found.functions or found.protocol:
                return None
            definition = found.functions[node.func.attr]
            return None if definition.decorator_list else (definition, parameters(definition)[1:])
        if isinstance(node.func, ast.Name) and node.func.id in frame.names:
            return None
        of = self.classes.resolved(frame.module, node.func)
        if of is None or of in self.classes.known:
            return None
        for statement in self.classes.folder.modules[of.module].statements:
            if of.name in statement.defined and isinstance(statement.node, Function):
                own = statement.node
                return None if own.decorator_list else (own, parameters(own))
        return None

    def module_of(self, node: ast.Call, frame: Frame) -> Module:
        """Return the module of the function that a call runs, where ``function`` tells it."""
        if isinstance(node.func, ast.Attribute) and not self._of_module(node.func, frame):
            base = self.value(node.func.value, frame)
            assert isinstance(base, Kind | Made)
            found = self.only_one(base.of, node.func.attr)
            assert found is not None
            return found.module
        of = self.classes.resolved(frame.module, node.func)
        assert of is not None
        return self.classes.folder.modules[of.module]

    def _of_module(self, node: ast.Attribute, frame: Frame) -> bool:
        """Return whether an attribute is what a module of the folder defines."""
        of = self.classes.resolved(frame.module, node)
        return of is not None and not self._local(node, frame)

    def _called(
        self, function: Function, module: Module, node: ast.Call, frame: Frame,
        before: tuple[Value, ...],
    ) -> Value | None:  # fmt: skip
        """Evaluate what a function of the folder returns to a call."""
        names = parameters(function)
        bound: dict[str, Value | None] = {}
        if any(isinstance(x, ast.Starred) for x in node.args) or None in (
            k.arg for k in node.keywords
        ):
            values: list[Value | None] = list(before)
        else:
            values = [*before, *(self.value(x, frame) for x in node.args)]
            bound = {k.arg: self.value(k.value, frame) for k in node.keywords if k.arg}
        bound |= dict(zip(names, values, strict=False))
        given = {n: v for n, v in bound.items() if not isinstance(v, Fresh) and v is not None}
        key = (id(function), *sorted(given.items(), key=lambda item: item[0]))
        if key not in self.calls:
            self.calls[key] = None  # where it calls itself
            place = Frame(module, self.arguments(function, module) | given, frame.depth + 1)
            self.calls[key] = self.returned(function, place)
        return self.calls[key]

    def arguments(self, function: Function, module: Module) -> dict[str, Value | None]:
        """Return what annotations tell of a function's parameters."""
        told = function.args
        every = [*told.posonlyargs, *told.args, *told.kwonlyargs]
        found = {a.arg: self.annotation(a.annotation, module) for a in every}
        return found | {a.arg: None for a in (told.vararg, told.kwarg) if a is not None}

    def annotation(self, node: ast.expr | None, module: Module) -> Value | None:
        """Return what an annotation tells of a value."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = parsed(node.value)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            word = node.value.id if isinstance(node.value, ast.Name) else ""
            rest = node.slice.elts
            if word == "tuple" and len(rest) == 2 and isinstance(rest[1], ast.Constant):
                return Each(self.annotation(rest[0], module))
        if not isinstance(node, ast.Name):
            return None
        of = self.classes.resolved(module, node)
        return Kind(self.classes.behind(of)) if of in self.classes.known else None

    def returned(self, function: Function, frame: Frame) -> Value | None:
        """Return what is known of a function's result, over all ways through its body."""
        told = self.annotation(function.returns, frame.module)
        if frame.depth >= DEEPEST or generates(function):
            return None
        ends: list[Value | None] = []
        if self._through(function.body, dict(frame.names), frame, ends):
            ends.append(Constant(None))
        found = joined(ends)
        if isinstance(told, Kind) and not isinstance(found, Kind | Made):
            return told
        return found

    def _through(
        self, body: list[ast.stmt], names: dict[str, Value | None], frame: Frame,
        ends: list[Value | None],
    ) -> bool:  # fmt: skip
        """Return whether a body is gone through to its end; put what it returns into ``ends``."""
        for node in body:
            place = replace(frame, names=names)
            match node:
                case ast.Return():
                    ends.append(Constant(None) if node.value is None
                                else self.value(node.value, place))  # fmt: skip
                    return False
                case ast.Raise():
                    return False
                case ast.If():
                    if not self._run_branches(node, names, place, ends):
                        return False
                case ast.Assign(targets=[target]):
                    names |= self.bound(target, self.value(node.value, place))
                case ast.Expr(value=ast.Constant()) | ast.Assert() | ast.Pass():
                    pass
                case _:
                    self._forget(node, names, place, ends)
        return True

    def _run_branches(
        self, node: ast.If, names: dict[str, Value | None], frame: Frame,
        ends: list[Value | None],
    ) -> bool:  # fmt: skip
        test = self.truth(node.test, frame)
        if test is not None:
            return self._through(node.body if test else node.orelse, names, frame, ends)
        left, right = dict(names), dict(names)
        ways = [
            known for known, body in ((left, node.body), (right, node.orelse))
            if self._through(body, known, frame, ends)
        ]  # fmt: skip
        for name in {n for known in ways for n in known}:
            names[name] = joined([known.get(name) for known in ways])
        return bool(ways)

    def _forget(
        self, node: ast.stmt, names: dict[str, Value | None], frame: Frame,
        ends: list[Value | None],
    ) -> None:  # fmt: skip
        """Make unknown what a statement that is not followed binds and returns."""
        bound, returns = bindings(node)
        names |= dict.fromkeys(bound)
        ends += [None] * returns
