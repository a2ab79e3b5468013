"""The gradients of quantities while they come in, and their sums."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import sympy as sp

from mnemic.codegen.plan import Map, Plan, Read


@dataclass
class Sums:
    """Parts of gradients by quantity."""

    plan: Plan
    active: set[str]
    parts: dict[str, list[str]] = field(default_factory=dict)
    totals: dict[str, str] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    """How many quantities (or ends) a gradient may come from."""

    def count(self, ends: Iterable[str]) -> None:
        """Count what reads each quantity, so that a gradient in one part has the whole name."""
        for name in self.active:
            self.uses[name] = self.plan.graph.out_degree(name)
        for name in ends:
            self.uses[name] = self.uses.get(name, 0) + 1

    def name(self, quantity: str, reader: str) -> str:
        """Name the part of a quantity's gradient that comes through a reader."""
        whole = f"d_{quantity}"
        return whole if self.uses.get(quantity, 0) == 1 else f"{whole}_of_{reader}"

    def give(self, quantity: str, part: str) -> None:
        """Add a part to a quantity's gradient, if a gradient of it is asked for."""
        if quantity in self.active:
            self.parts.setdefault(quantity, []).append(part)

    def total(self, quantity: str) -> str | None:
        """Add up a quantity's gradient and return its name; ``None`` where no part has come in."""
        parts = self.parts.get(quantity)
        if not parts:
            return None
        whole = parts[0] if len(parts) == 1 else self._sum(quantity, parts)
        self.totals[quantity] = whole
        return whole

    def _sum(self, quantity: str, parts: list[str]) -> str:
        axes, equation = self.plan.axes(quantity), self.plan[quantity].equation
        counts = {part: parts.count(part) for part in parts}
        symbols = {part: sp.Symbol(f"part{i}_", real=True) for i, part in enumerate(counts)}
        expr = sp.Add(*(count * symbols[part] for part, count in counts.items()))
        reads = tuple(Read(symbols[part].name, part, axes) for part in counts)
        return self.plan.add(f"d_{quantity}", axes, Map(expr, reads), gradient_of(equation))


def gradient_of(equation: str) -> str:
    """Name the equation that a gradient belongs to, by the one that it is the gradient of."""
    return f"gradient of {equation}" if equation else ""
