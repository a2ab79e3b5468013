"""One step back: a quantity, its gradient, and what its rule says of those of its arguments."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.ops.gradient_sums import Sums, gradient_of
from mnemic.codegen.ops.operation import Operation
from mnemic.codegen.plan import Call, Map, Plan, Product, Quantity, Read

Axes = tuple[str, ...]
Env = str | tuple[str, Axes]
"""A quantity in an expression, with the axes that it has there where they are not its own."""

SUMS = ("total", "total_rows", "total_states")
"""Sums over the last axis, the one before it, and the one before that."""


@dataclass(frozen=True)
class At:
    """A quantity whose gradient ``d`` is known."""

    sums: Sums
    quantity: Quantity
    d: str
    operation: Operation | None = None
    """What the quantity calls."""

    @property
    def plan(self) -> Plan:
        """The plan to which gradients are added."""
        return self.sums.plan

    @property
    def out(self) -> str:
        """The quantity's name."""
        return self.quantity.name

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the quantity reads, in order."""
        op = self.quantity.op
        return op.arguments if isinstance(op, Call) else self.quantity.reads()

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option of the call that the quantity is, or the default where it is not set."""
        assert isinstance(self.quantity.op, Call)
        return dict(self.quantity.op.options).get(name, default)

    def wants(self, *arguments: str) -> bool:
        """Return whether a gradient goes through any of these arguments."""
        return any(a in self.sums.active for a in arguments)

    def axes(self, name: str) -> Axes:
        """Return a quantity's axes; for ``d`` those of the quantity whose gradient it is."""
        return self.quantity.axes if name == self.d else self.plan.axes(name)

    def name(self, argument: str) -> str:
        """Name this step's part of an argument's gradient."""
        return self.sums.name(argument, self.out)

    def give(self, argument: str, part: str) -> None:
        """Add a part to an argument's gradient."""
        self.sums.give(argument, part)

    # -- quantities -------------------------------------------------------------------------

    def _add(self, name: str, axes: Axes, op: Any) -> str:
        return self.plan.add(name, axes, op, gradient_of(self.quantity.equation))

    def call(self, name: str, axes: Axes, function: str, *arguments: str, **options: Any) -> str:
        """Add a call of a function of the support module; return the name of its value."""
        return self._add(name, axes, Call(function, arguments, tuple(sorted(options.items()))))

    def product(self, name: str, axes: Axes, left: str, right: str, flips: str = "") -> str:
        """Add a matrix product and return its name; ``flips``: transposed sides, l, r or lr."""
        return self._add(name, axes, Product(left, right, "l" in flips, "r" in flips))

    def map(self, name: str, axes: Axes, text: str, **env: Env) -> str:
        """Add an expression, written as text of the names in ``env``, and return its name."""
        symbols = {n: sp.Symbol(f"{n}_", real=True) for n in env}
        expr = sp.sympify(text, locals=symbols)
        reads = []
        for n, entry in env.items():
            quantity, seen = entry if isinstance(entry, tuple) else (entry, self.axes(entry))
            reads.append(Read(f"{n}_", quantity, seen))
        return self.expression(name, axes, expr, tuple(reads))

    def expression(self, name: str, axes: Axes, expr: Any, reads: tuple[Read, ...]) -> str:
        """Add an elementwise expression and return its name; of a symbol alone, what it reads."""
        free = {s.name for s in expr.free_symbols}
        reads = tuple(r for r in reads if r.symbol in free)
        if expr.is_Symbol and reads[0].axes == axes:
            return reads[0].quantity
        return self._add(name, axes, Map(expr, reads))

    def summed(self, name: str, quantity: str, axes: Axes, kept: Axes) -> str:
        """Add up entries over the axes that are not kept, from the last on; return the name."""
        dropped = [i for i in reversed(range(len(axes))) if axes[i] not in kept]
        left = list(axes)
        for number, i in enumerate(dropped):
            function = SUMS[len(left) - 1 - i]
            del left[i]
            final = number == len(dropped) - 1
            quantity = self.call(name if final else f"{name}_sum", tuple(left), function, quantity)
        return quantity

    # -- parts of gradients -----------------------------------------------------------------

    def give_call(self, argument: str, function: str, *arguments: str, **options: Any) -> None:
        """Give an argument a function's value."""
        if self.wants(argument):
            axes = self.axes(argument)
            self.give(argument, self.call(self.name(argument), axes, function, *arguments,
                                          **options))  # fmt: skip

    def give_product(self, argument: str, left: str, right: str, flips: str = "") -> None:
        """Give an argument a matrix product."""
        if self.wants(argument):
            name, axes = self.name(argument), self.axes(argument)
            self.give(argument, self.product(name, axes, left, right, flips))

    def give_map(self, argument: str, text: str, **env: Env) -> None:
        """Give an argument an elementwise expression of its own axes."""
        if self.wants(argument):
            name, axes = self.name(argument), self.axes(argument)
            self.give(argument, self.map(name, axes, text, **env))

    def give_sum(self, argument: str, text: str, over: Axes, **env: Env) -> None:
        """Give an argument an expression with the axes ``over``, summed over those it lacks."""
        if self.wants(argument):
            name, kept = self.name(argument), self.axes(argument)
            inner = self.map(f"{name}_parts", over, text, **env)
            self.give(argument, self.summed(name, inner, over, kept))
