"""Writes an operation on a whole memory as sums and maxima over its entries."""

from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from mnemic.codegen.plan import Call, Map, Plan, Quantity, Read


@dataclass(frozen=True)
class Entries:
    """A quantity that is written anew, in a plan that grows by what it is made of."""

    plan: Plan
    quantity: Quantity

    @property
    def call(self) -> Call:
        """The quantity's call of a function."""
        assert isinstance(self.quantity.op, Call)
        return self.quantity.op

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the quantity reads, in order."""
        return self.call.arguments

    @property
    def options(self) -> dict[str, Any]:
        """The call's options by name."""
        return dict(self.call.options)

    def map(self, suffix: str, axes: tuple[str, ...], expr: sp.Expr, **reads: str) -> str:
        """Add an expression of quantities, each along those axes that it has."""
        op = self._map(expr, reads)
        return self.plan.add(self._name(suffix), axes, op, self.quantity.equation)

    def function(self, suffix: str, axes: tuple[str, ...], name: str, of: str) -> str:
        """Add a function of a quantity."""
        return self.plan.add(self._name(suffix), axes, Call(name, (of,)), self.quantity.equation)

    def filled(self, suffix: str, like: str, value: float) -> str:
        """Add a number everywhere in a memory."""
        call = Call("filled", (like,), (("value", value),))
        return self.plan.add(self._name(suffix), self.plan.axes(like), call, self.quantity.equation)

    def done(self, expr: sp.Expr, **reads: str) -> None:
        """Make the quantity this expression."""
        self.plan.rewrite(replace(self.quantity, op=self._map(expr, reads)))

    def sum(self, suffix: str, of: str, over: str = "all") -> str:
        """Add the sum over all entries of a memory, over each row's or over each column's."""
        rows, columns = self.plan.axes(of)
        if over == "columns":
            return self.function(f"{suffix}_sums", (columns,), "total_rows", of)
        sums = self.function(f"{suffix}_sums", (rows,), "total", of)
        return sums if over == "rows" else self.function(f"{suffix}_sum", (), "total", sums)

    def _map(self, expr: sp.Expr, reads: dict[str, str]) -> Map:
        return Map(expr, tuple(Read(s, n, self.plan.axes(n)) for s, n in reads.items()))

    def _name(self, suffix: str) -> str:
        return f"{self.quantity.name}_{suffix}"
