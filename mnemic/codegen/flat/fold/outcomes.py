"""Expressions whose outcome is known, written as that outcome."""

import ast

from mnemic.codegen.flat.fold.attributes import Evaluator
from mnemic.codegen.flat.fold.edits import Text
from mnemic.codegen.flat.fold.facts import Frame
from mnemic.codegen.flat.fold.harmless import gives_back, harmless
from mnemic.codegen.flat.fold.values import Constant, Fresh, Items, joined
from mnemic.codegen.flat.modules import Module
from mnemic.codegen.flat.nodes import children, nodes

ATOMS = (
    ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.List, ast.Dict, ast.Set,
    ast.JoinedStr, ast.ListComp, ast.DictComp, ast.SetComp,
)  # fmt: skip
"""Expressions that stand anywhere without parentheses."""


class Outcomes:
    """One module, the outcomes of its expressions written into ``text``."""

    def __init__(self, evaluator: Evaluator, module: Module) -> None:
        self.evaluator, self.module = evaluator, module
        self.text = Text(module.source)

    def harmless(self, node: ast.expr, frame: Frame) -> bool:
        """Return whether an expression may be left out, calls with known outcomes included."""
        return harmless(node, self.evaluator, frame)

    def known(self, test: ast.expr, frame: Frame) -> bool:
        """Return whether a test is sure to be passed, and may be left out."""
        return self.evaluator.truth(test, frame) is True and self.harmless(test, frame)

    def expressions(self, node: ast.expr, frame: Frame) -> None:
        """Write out the outcomes in an expression; f-strings stay as they are."""
        if isinstance(node, ast.Name | ast.Constant | ast.JoinedStr) or self._number(node, frame):
            return
        if self._known_part(node, frame):
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            self._comprehension(node, frame)
            return
        if isinstance(node, ast.Lambda):
            names = {a.arg: None for a in nodes(node.args) if isinstance(a, ast.arg)}
            frame = frame.with_names(names)
        for inner in children(node):
            if isinstance(inner, ast.expr) and not self._asked_of(inner, node, frame):
                self.expressions(inner, frame)
            elif isinstance(inner, ast.keyword):
                self.expressions(inner.value, frame)

    def _asked_of(self, inner: ast.expr, node: ast.expr, frame: Frame) -> bool:
        """Return whether it is a constant that something is asked of; no number can be."""
        owner = getattr(node, "func", getattr(node, "value", None))
        return owner is inner and isinstance(self.evaluator.value(inner, frame), Constant)

    def _known_part(self, node: ast.expr, frame: Frame) -> bool:
        """Write an expression without parts that do not count; return whether there are any."""
        match node:
            case ast.IfExp():
                return self._way(node, frame)
            case ast.BinOp():
                return self._unit(node, frame)
            case ast.Subscript(ctx=ast.Load()):
                return self._whole(node, frame)
            case ast.BoolOp():
                return self._operands(node, frame)
            case ast.Call():
                return self._inlined(node, frame) or self._splats(node, frame)
            case ast.Tuple() | ast.List() | ast.Set():
                return self._splats(node, frame)
        return False

    def _way(self, node: ast.IfExp, frame: Frame) -> bool:
        """Write the one of two expressions that is taken; return whether that is known."""
        test = self.evaluator.truth(node.test, frame)
        if test is None or not self.harmless(node.test, frame):
            return False
        self._put(node, node.body if test else node.orelse)
        return True

    def _put(self, node: ast.expr, other: ast.expr) -> None:
        """Write one expression in the place of another."""
        text = self.text.of(other)
        bare = isinstance(other, ATOMS) or (isinstance(other, ast.Tuple) and text[:1] == b"(")
        self._write(node, text, bare=bare)

    def _write(self, node: ast.expr, text: bytes, *, bare: bool) -> None:
        """Write a text in the place of an expression, and of parentheses that it does not need."""
        first, end = self.text.span(node)
        raw = self.text.raw
        before, behind = raw[:first].rstrip(), raw[end:].lstrip()
        if before[-1:] == b"(" and behind[:1] == b")" and before[-2:-1] in (b" ", b"(", b"["):
            first, end = len(before) - 1, len(raw) - len(behind) + 1
            if not bare:
                text = b"(" + text + b")"
        elif not bare and raw[first - 1 : first] + raw[end : end + 1] not in (b"()", b"[]"):
            text = b"(" + text + b")"
        self.text.edits.append((first, end, text))

    def _number(self, node: ast.expr, frame: Frame) -> bool:
        """Write a known whole number, truth value or ``None`` as that; return whether it is one."""
        if not isinstance(node, ast.Attribute | ast.Call | ast.BinOp | ast.Compare):
            return False
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return False
        found = self.evaluator.value(node, frame)
        empty = isinstance(found, Items) and not isinstance(found, Fresh) and not found.items
        number = isinstance(found, Constant) and isinstance(found.value, int | None)
        if not (number or (empty and isinstance(node, ast.Call))):
            return False
        if not self.harmless(node, frame):
            return False
        value = found.value if isinstance(found, Constant) else ()
        self._write(node, repr(value).encode(), bare=True)
        return True

    def _unit(self, node: ast.BinOp, frame: Frame) -> bool:
        """Leave out a factor or divisor of 1, and what is added and is 0; return whether any is."""
        left, right = (self._exact(x, frame) for x in (node.left, node.right))
        if isinstance(node.op, ast.Mult) and left == 1:
            self._put(node, node.right)
        elif (
            (isinstance(node.op, ast.Mult | ast.FloorDiv) and right == 1)
            or (isinstance(node.op, ast.Add | ast.Sub) and right == 0)
            or (isinstance(node.op, ast.Add) and self._blank(node.right, frame))
        ):
            self._put(node, node.left)
        else:
            return False
        return True

    def _blank(self, node: ast.expr, frame: Frame) -> bool:
        """Return whether an expression is a text without a letter."""
        found = self.evaluator.value(node, frame)
        return isinstance(found, Constant) and found.value == ""

    def _exact(self, node: ast.expr, frame: Frame) -> int | None:
        """Return the whole number that an expression is, ``None`` where it is none or unknown."""
        found = self.evaluator.value(node, frame)
        value = found.value if isinstance(found, Constant) else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _whole(self, node: ast.Subscript, frame: Frame) -> bool:
        """Leave out slices that take all, ``x[:, 0::1]``; return whether there are any."""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in parts:
            if not isinstance(part, ast.Slice) or part.upper is not None:
                return False
            low = 0 if part.lower is None else self._exact(part.lower, frame)
            step = 1 if part.step is None else self._exact(part.step, frame)
            if (low, step) != (0, 1) or (
                part.lower is None and part.step is None and len(parts) == 1
            ):
                return False
        self._put(node, node.value)
        return True

    def _inlined(self, node: ast.Call, frame: Frame) -> bool:
        """Write an argument in the place of a call that gives it back; return whether it does."""
        found = self.evaluator.function(node, frame)
        if found is None:
            return False
        function, names = found
        name = gives_back(function)
        place = names.index(name) if name in names else -1
        rest = [*node.args, *(k.value for k in node.keywords)]
        if any(isinstance(x, ast.Starred) for x in rest) or None in (k.arg for k in node.keywords):
            return False
        named = {k.arg: k.value for k in node.keywords}
        given = node.args[place] if 0 <= place < len(node.args) else named.get(name or "")
        if given is None or any(x is not given and not self.harmless(x, frame) for x in rest):
            return False
        self._put(node, given)
        return True

    def _operands(self, node: ast.BoolOp, frame: Frame) -> bool:
        """Leave out operands that do not count; return whether anything was changed."""
        stops = isinstance(node.op, ast.Or)
        kept: list[ast.expr] = []
        for place, operand in enumerate(node.values):
            found = self.evaluator.truth(operand, frame)
            last = place == len(node.values) - 1
            known = found is not None and self.harmless(operand, frame)
            if known and found is stops and not kept:
                self._put(node, operand)  # what the whole is, whatever follows
                return True
            if not known or found is stops or last:
                kept.append(operand)
            if known and found is stops:
                break
        if len(kept) == len(node.values):
            return False
        word = b" or " if stops else b" and "
        if len(kept) == 1:
            self._put(node, kept[0])
        else:
            parts = [self.text.of(x) for x in kept]
            wrapped = [
                b"(" + part + b")" if isinstance(x, ast.BoolOp | ast.IfExp) else part
                for x, part in zip(kept, parts, strict=True)
            ]
            self.text.replace(node, word.join(wrapped))
        return True

    def _splats(self, node: ast.expr, frame: Frame) -> bool:
        """Leave out what is spread into a display or call and is empty; return whether any is."""
        if isinstance(node, ast.Call):
            inner: list[ast.AST] = [*node.args, *node.keywords]
        else:
            inner = list(node.elts)  # type: ignore[attr-defined]
        for place, x in enumerate(inner):
            if not isinstance(x, ast.Starred) and not (isinstance(x, ast.keyword) and not x.arg):
                continue
            value = self.evaluator.value(x.value, frame)
            if not isinstance(value, Items) or value.items or not self.harmless(x.value, frame):
                continue
            self._without(node, inner, place)
            return True
        return False

    def _without(self, node: ast.expr, inner: list[ast.AST], place: int) -> None:
        """Take one of several items of a display or a call out, with its comma."""
        first, end = self.text.span(inner[place])
        if isinstance(inner[place], ast.keyword):
            first = self.text.raw.rfind(b"**", 0, first + 2)
        if place + 1 < len(inner):
            end = self.text.span(inner[place + 1])[0]
            following = inner[place + 1]
            if isinstance(following, ast.keyword) and not following.arg:
                end = self.text.raw.rfind(b"**", 0, end + 2)
        elif place:
            first = self.text.span(inner[place - 1])[1]
        single = isinstance(node, ast.Tuple) and len(inner) == 2
        if single and place == 0:
            self.text.edits.append((first, end, b""))
            last = self.text.span(inner[1])[1]
            self.text.edits.append((last, last, b","))
        elif isinstance(node, ast.Tuple) and len(inner) == 1:
            self.text.replace(node, b"()")
        elif isinstance(node, ast.Set) and len(inner) == 1:
            self.text.replace(node, b"set()")
        else:
            self.text.edits.append((first, end, b"," if single else b""))

    def _comprehension(self, node: ast.expr, frame: Frame) -> None:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        if self.evaluator.empty(generators, frame) and self.harmless(generators[0].iter, frame):
            empty = {ast.ListComp: b"[]", ast.DictComp: b"{}", ast.SetComp: b"set()"}
            if type(node) in empty:
                self.text.replace(node, empty[type(node)])
                return
        place = frame
        for generator in generators:
            self.expressions(generator.iter, place)
            items = self.evaluator.items(self.evaluator.value(generator.iter, place))
            value = joined(items[1]) if items is not None and items[1] else None
            place = place.with_names(self.evaluator.bound(generator.target, value))
            for test in generator.ifs:
                if self.known(test, place):
                    first, end = self.text.span(test)
                    start = self.text.raw.rfind(b"if", 0, first)
                    while self.text.raw[start - 1 : start].isspace():
                        start -= 1
                    self.text.edits.append((start, end, b""))
                else:
                    self.expressions(test, place)
        for name in ("elt", "key", "value"):
            inner = getattr(node, name, None)
            if isinstance(inner, ast.expr):
                self.expressions(inner, place)
