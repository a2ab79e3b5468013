"""Functions of whole memories as sums and maxima over entries, which blocks can be joined by.

For kernels that see a block of a memory at a time: ‖A‖_p from its largest entry and the sum of
powers, softmax from the highest exponent and the sum of exponentials, norms of rows from sums of
squares. A number that is as a memory is (its type, its device) is that number.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import sympy as sp

from mnemic.codegen.plan import Call, Map, Plan, Quantity, Read
from mnemic.codegen.readouts import TINY
from mnemic.codegen.tiled.layout import Layout


@dataclass(frozen=True)
class Writing:
    """A quantity that is written anew."""

    plan: Plan
    quantity: Quantity

    @property
    def call(self) -> Call:
        """Its function."""
        assert isinstance(self.quantity.op, Call)
        return self.quantity.op

    def map(self, suffix: str, axes: tuple[str, ...], expr: sp.Expr, **reads: str) -> str:
        """An expression of quantities, each along those axes that it has."""
        op = self._map(expr, reads)
        return self.plan.add(self._name(suffix), axes, op, self.quantity.equation)

    def function(self, suffix: str, axes: tuple[str, ...], name: str, of: str) -> str:
        """A function of a quantity."""
        return self.plan.add(self._name(suffix), axes, Call(name, (of,)), self.quantity.equation)

    def filled(self, suffix: str, like: str, value: float) -> str:
        """A number everywhere in a memory."""
        call = Call("filled", (like,), (("value", value),))
        return self.plan.add(self._name(suffix), self.plan.axes(like), call, self.quantity.equation)

    def done(self, expr: sp.Expr, **reads: str) -> None:
        """What the quantity is now."""
        self.plan.rewrite(replace(self.quantity, op=self._map(expr, reads)))

    def sum(self, suffix: str, of: str, over: str = "all") -> str:
        """Σ over all entries of a memory, over each row's or over each column's."""
        rows, columns = self.plan.axes(of)
        if over == "columns":
            return self.function(f"{suffix}_sums", (columns,), "total_rows", of)
        sums = self.function(f"{suffix}_sums", (rows,), "total", of)
        return sums if over == "rows" else self.function(f"{suffix}_sum", (), "total", sums)

    def _map(self, expr: sp.Expr, reads: dict[str, str]) -> Map:
        return Map(expr, tuple(Read(s, n, self.plan.axes(n)) for s, n in reads.items()))

    def _name(self, suffix: str) -> str:
        return f"{self.quantity.name}_{suffix}"


x, y, z, w = sp.symbols("x y z w", real=True)


def _norm(at: Writing, power: sp.Expr, of: str) -> tuple[sp.Expr, dict[str, str]]:
    """‖A‖_p, at least ``TINY``, of what it reads: the largest entry is taken out."""
    axes = at.plan.axes(of)
    largest = at.function("largest", (), "largest", of)
    powers = at.map("powers", axes, (sp.Abs(x) / y) ** power, x=of, y=largest)
    return sp.Max(y * z ** (1 / power), TINY), {"y": largest, "z": at.sum("powers", powers)}


def _entry_norm(at: Writing) -> None:
    power = sp.nsimplify(dict(at.call.options)["power"])
    expr, reads = _norm(at, power, at.call.arguments[0])
    at.done(expr, **reads)


def _ball(at: Writing) -> None:
    matrix, radius = at.call.arguments
    norm, reads = _norm(at, sp.Integer(2), matrix)
    at.done(x * sp.Min(w / norm, 1), x=matrix, w=radius, **reads)


def _simplex(at: Writing) -> None:
    exponent, scale = at.call.arguments
    over = str(dict(at.call.options)["over"])
    rows, columns = at.plan.axes(exponent)
    axes, name = {
        "rows": ((rows,), "highest_of_rows"), "columns": ((columns,), "highest_of_columns"),
    }.get(over, ((), "highest"))  # fmt: skip
    highest = at.function("highest", axes, name, exponent)
    weights = at.map("weights", (rows, columns), sp.exp(x - y), x=exponent, y=highest)
    at.done(w * x / z, x=weights, z=at.sum("weights", weights, over), w=scale)


def _norms_of(at: Writing) -> None:
    (matrix,) = at.call.arguments
    at.done(sp.sqrt(x), x=_squares(at, matrix))


def _scaled_to_norms(at: Writing) -> None:
    matrix, norms = at.call.arguments
    size = _squares(at, matrix)
    at.done(x * w / sp.Max(sp.sqrt(y), TINY), x=matrix, w=norms, y=size)


def _centred(at: Writing) -> None:
    (matrix,) = at.call.arguments
    over = "rows" if dict(at.call.options)["axis"] == "v" else "columns"
    ones = at.filled("ones", matrix, 1.0)
    at.done(x - y / z, x=matrix, y=at.sum("entries", matrix, over), z=at.sum("ones", ones, over))


def _constant(at: Writing) -> None:
    at.done(sp.Float(dict(at.call.options)["value"]))


def _squares(at: Writing, matrix: str) -> str:
    """Σ of squares over each row (axis ``v``) or column (``k``)."""
    squares = at.map("squares", at.plan.axes(matrix), x**2, x=matrix)
    over = "rows" if dict(at.call.options)["axis"] == "v" else "columns"
    return at.sum("squares", squares, over)


WRITINGS: dict[str, Callable[[Writing], None]] = {
    "entry_norm": _entry_norm,
    "ball": _ball,
    "simplex": _simplex,
    "centred": _centred,
    "norms_of": _norms_of,
    "scaled_to_norms": _scaled_to_norms,
    "constant": _constant,
}


def spread(lay: Layout, along: tuple[str, ...]) -> Plan:
    """The plan of a layout whose functions of whole memories are sums and maxima over entries;
    itself where it has none of memories that are gone along."""
    plan = lay.plan
    calls = {q.name: q.op for q in plan.ordered() if isinstance(q.op, Call)}
    found = [
        name for name, call in calls.items()
        if call.function in WRITINGS and set(lay.sizes(call.arguments[0])) & set(along)
    ]  # fmt: skip
    if not found:
        return plan
    copied = replace(plan, graph=plan.graph.copy(), known=dict(plan.known))
    for name in found:
        WRITINGS[calls[name].function](Writing(copied, copied[name]))
    return copied
