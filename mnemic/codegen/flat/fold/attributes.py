"""Attributes of what a folder's classes make: declared fields, properties, what is bound once."""

import ast
from collections.abc import Iterator

from mnemic.codegen.flat.fold.calls import Calls
from mnemic.codegen.flat.fold.classes import Class, Classes, Function
from mnemic.codegen.flat.fold.facts import DEEPEST, Frame, bindings, parameters
from mnemic.codegen.flat.fold.values import Fresh, Full, Items, Kind, Made, Value, joined
from mnemic.codegen.flat.modules import Name
from mnemic.codegen.flat.nodes import nodes


class Evaluator(Calls):
    """What is known of expressions in a folder."""

    def __init__(self, classes: Classes, own: set[str]) -> None:
        super().__init__(classes, own)
        self.made: dict[Name, list[Made]] = {}
        """The instances of declared classes."""
        self.changed: frozenset[str] = frozenset()
        """Attributes of which ``replace`` makes others, or that are bound from outside."""
        self.members: dict[tuple[Name, str], Value | None] = {}
        self.given: dict[Name, dict[str, list[Given]]] = {}

    def declares(self, of: Name, frame: Frame) -> bool:
        """Return whether a call of a class in a frame makes an instance that is told apart."""
        return of in self.made and frame.module.name in self.own

    def instance(self, of: Name, node: ast.Call, frame: Frame) -> Made:
        """Return what a call of a dataclass makes."""
        defaults, fields = self._fields(of)
        found: dict[str, Value | None] = dict(defaults)
        if any(isinstance(x, ast.Starred) for x in node.args) or None in (
            k.arg for k in node.keywords
        ):
            return Made(of, dict.fromkeys(fields))
        for name, argument in zip(fields, node.args, strict=False):
            found[name] = self.value(argument, frame)
        found |= {k.arg: self.value(k.value, frame) for k in node.keywords if k.arg}
        return Made(of, {n: _keep_value(v) for n, v in found.items()})

    def _fields(self, of: Name) -> tuple[dict[str, Value | None], list[str]]:
        """Return the fields of a dataclass, with what they are where nothing is said."""
        defaults: dict[str, Value | None] = {}
        for found in reversed(list(self.classes.line(of))):
            for name in found.annotated:
                told = found.held.get(name)
                place = Frame(found.module, depth=DEEPEST)
                defaults[name] = None if told is None else self.value(told, place)
        return defaults, list(defaults)

    def member(self, base: Value | None, name: str, depth: int) -> Value | None:
        """Return what is known of an attribute."""
        if isinstance(base, Made) and name in base.fields:
            return None if name in self.changed else base.fields[name]
        if not isinstance(base, Kind | Made) or depth >= DEEPEST:
            return None
        if isinstance(base, Kind) and base.of in self.made and name in self._fields(base.of)[1]:
            if name in self.changed:
                return None
            return joined([self.member(x, name, depth + 1) for x in self.made[base.of]])
        if isinstance(base, Made):
            return self._member(base, name, depth)
        key = (base.of, name)
        if key not in self.members:
            self.members[key] = None  # where it is made of itself
            self.members[key] = self._member(base, name, depth)
        return self.members[key]

    def _member(self, base: Kind | Made, name: str, depth: int) -> Value | None:
        generated = [n for n in self.classes.subclasses(base.of) if n.module in self.own]
        if generated:
            held = [self._held(n, name, depth) for n in generated]
            if None not in held:
                return joined(held)
        found = self.only_one(base.of, name)
        if found is None:
            return self._of_instance(base.of, name, depth)
        if name in found.functions:
            if not found.is_property(name):
                return Full()
            function = found.functions[name]
            if found.protocol:
                return self.annotation(function.returns, found.module)
            first = parameters(function)[0]
            place = Frame(found.module, {first: base}, depth + 1)
            return self.returned(function, place)
        if name in found.annotated and name not in found.held:
            told = self.annotation(found.annotated[name], found.module)
            return told if told is not None else self._of_instance(base.of, name, depth)
        return None

    def _held(self, of: Name, name: str, depth: int) -> Value | None:
        """Return what a generated class holds under a name, of its own or inherited."""
        found = self.classes.owner(of, name)
        if found is None or name not in found.held or found.dataclass:
            return None
        return _keep_value(self.value(found.held[name], Frame(found.module, depth=depth + 1)))

    def only_one(self, of: Name, name: str) -> Class | None:
        """Return the class that defines an attribute, where no subclass defines another."""
        found = self.classes.owner(of, name)
        below = [self.classes.owner(n, name) for n in self.classes.subclasses(of)]
        return found if all(x is found for x in below) else None

    def _of_instance(self, of: Name, name: str, depth: int) -> Value | None:
        """Return what instances are given when they are made, once and nowhere else."""
        if name in self.changed:
            return None
        classes = {x.name: x for n in self.classes.subclasses(of) for x in self.classes.line(n)}
        for x in classes.values():
            if x.name not in self.given:
                self.given[x.name] = _given(x)
        given = [found for x in classes for found in self.given[x].get(name, ())]
        if len(given) != 1 or given[0] is None:
            return None
        found, function, value = given[0]
        place = Frame(found.module, self.arguments(function, found.module), depth + 1)
        first = parameters(function)[0]
        place = place.with_names({first: Kind(found.name)})
        return _keep_value(self.value(value, place))


Given = tuple[Class, Function, ast.expr] | None
"""Where a method binds an attribute of ``self``; ``None`` where what to is not followed."""


def _given(found: Class) -> dict[str, list[Given]]:
    """Collect what the methods of a class bind attributes to."""
    told: dict[str, list[Given]] = {}
    for function in found.functions.values():
        followed: set[int] = set()
        for node in nodes(function):
            if isinstance(node, ast.Assign) and function.name == "__init__":
                for target in node.targets:
                    for place, value in _pairs(target, node.value):
                        followed.add(id(place))
                        own = value is not None and _own(function, place, value)
                        given = (found, function, value) if own and value is not None else None
                        told.setdefault(place.attr, []).append(given)
        for node in nodes(function):
            stored = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
            if stored and id(node) not in followed:
                told.setdefault(node.attr, []).append(None)  # type: ignore[attr-defined]
    return told


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.Attribute, ast.expr | None]]:
    """Yield the attributes that an assignment binds, and to what."""
    if isinstance(target, ast.Attribute):
        yield target, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for inner, part in zip(target.elts, value.elts, strict=False):
            yield from _pairs(inner, part)
    elif isinstance(target, ast.Tuple):
        yield from ((x, None) for x in target.elts if isinstance(x, ast.Attribute))


def _own(function: Function, place: ast.Attribute, value: ast.expr) -> bool:
    """Return whether an attribute is bound on ``self``, to what no local name stands for."""
    if not isinstance(place.value, ast.Name) or place.value.id != parameters(function)[0]:
        return False
    stored, _ = bindings(function)
    return not stored & {n.id for n in nodes(value) if isinstance(n, ast.Name)}


def _keep_value(value: Value | None) -> Value | None:
    """Return what a field or an attribute holds, which nobody changes: no ``Fresh`` items."""
    return Items(value.items) if isinstance(value, Fresh) else value
