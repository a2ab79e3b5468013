"""The order of a chunk's statements in a kernel: late loads, long chains first, few tiles alive."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import Held, Layout, Row

Step = Row | Held | Quantity
"""The load of an argument or of a memory that is one, or a statement."""


@dataclass(frozen=True)
class Stage:
    """What must be known for some ends: loads and statements, in order."""

    steps: tuple[Step, ...]
    ends: tuple[str, ...]


Load = TypeVar("Load")
"""What stands for something that is read."""


@dataclass
class Order(Generic[Load]):
    """Loads and statements as they are asked for."""

    lay: Layout
    inside: dict[str, Quantity]
    rows: Mapping[str, Load]
    done: set[str] = field(default_factory=set)
    weights: dict[str, int] = field(default_factory=dict)

    def weight(self, name: str) -> int:
        """Count how much must be computed before a quantity: what a chain holds up."""
        if name not in self.weights:
            reads = self.inside[name].reads() if name in self.inside else ()
            self.weights[name] = 1 + sum(self.weight(read) for read in reads)
        return self.weights[name]

    def until(self, name: str) -> Iterator[Load | Quantity]:
        """Yield what is missing for a quantity, and itself."""
        if name in self.done:
            return
        self.done.add(name)
        if name in self.rows:
            yield self.rows[name]
        elif name in self.inside:
            quantity = self.inside[name]
            for read in sorted(quantity.reads(), key=lambda n: -self.weight(n)):
                yield from self.until(read)
            yield quantity


def stages(
    lay: Layout, inside: list[Quantity], ends: tuple[tuple[str, ...], ...],
    memories: tuple[Held, ...] = (),
) -> list[Stage]:  # fmt: skip
    """Return a stage for each group of ends: the statements behind them, in order.

    Arguments are loaded anew for each group, and what takes no product is computed anew from them:
    that is cheaper than to keep it in registers. Loads of ``memories`` stand where a lean cut
    needs them.
    """
    order, anew = _order(lay, inside, memories)
    found = []
    for group in ends:
        order.done -= anew
        steps = tuple(step for end in group for step in order.until(end))
        found.append(Stage(steps, group))
    return found


def waiting(
    lay: Layout, inside: list[Quantity], ends: tuple[tuple[str, ...], ...], tail: tuple[str, ...],
    memories: tuple[Held, ...] = (),
) -> tuple[list[Stage], Stage]:  # fmt: skip
    """Return the stages without a ``tail``, where what it reads is known instead; and the tail."""
    order, anew = _order(lay, inside, memories)
    reads = dict.fromkeys(n for name in tail for n in order.inside[name].reads())
    late = [n for n in reads if n not in anew and n not in tail]
    before = tuple(sorted(late, key=lambda name: -order.weight(name)))
    groups = (*(before if tail[-1] in group else group for group in ends), tail[-1:])
    *found, last = stages(lay, inside, groups, memories)
    return found, last


def _order(
    lay: Layout, inside: list[Quantity], memories: tuple[Held, ...]
) -> tuple[Order[Row | Held], set[str]]:
    """Return an order to ask for statements in, and which of them are done anew for each group."""
    found: tuple[Row | Held, ...] = (*lay.rows, *memories)
    loads = {load.name: load for load in found}
    again = light(lay, inside, {row.name for row in lay.rows})
    return Order(lay, {q.name: q for q in inside}, loads), {*loads} | again


def light(lay: Layout, inside: list[Quantity], rows: set[str]) -> set[str]:
    """Return the quantities behind which no product and no memory stands."""
    found = set(rows)
    for quantity in inside:
        if not heavy(quantity) and found.issuperset(quantity.reads()):
            found.add(quantity.name)
    return found - rows
