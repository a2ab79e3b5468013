"""The order of a chunk's statements in a kernel: loads late, long chains of statements early, few
tiles alive at once."""

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
    """The loads and statements, in order, that some ends need."""

    steps: tuple[Step, ...]
    ends: tuple[str, ...]


Load = TypeVar("Load")
"""What stands for something that is read."""


@dataclass
class Order(Generic[Load]):
    """Emits loads and statements on demand, each once."""

    lay: Layout
    inside: dict[str, Quantity]
    rows: Mapping[str, Load]
    done: set[str] = field(default_factory=set)
    weights: dict[str, int] = field(default_factory=dict)

    def weight(self, name: str) -> int:
        """Count the statements on the way to a quantity; of what a statement reads, the heaviest
        comes first."""
        if name not in self.weights:
            reads = self.inside[name].reads() if name in self.inside else ()
            self.weights[name] = 1 + sum(self.weight(read) for read in reads)
        return self.weights[name]

    def until(self, name: str) -> Iterator[Load | Quantity]:
        """Yield all loads and statements that a quantity still needs, and then its own."""
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
    """Return a stage for each group of ends: the loads and statements that they need, in order.

    Each group loads arguments again, and recomputes from them what takes no product: that is
    cheaper than to keep it in registers. Loads of ``memories`` are placed where a lean cut needs
    them.
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
    """Return the stages without a ``tail``, ending instead with what it reads; and the tail as a
    stage."""
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
    """Return an order to request statements from, and the quantities that each group recomputes."""
    found: tuple[Row | Held, ...] = (*lay.rows, *memories)
    loads = {load.name: load for load in found}
    again = light(lay, inside, {row.name for row in lay.rows})
    return Order(lay, {q.name: q for q in inside}, loads), {*loads} | again


def light(lay: Layout, inside: list[Quantity], rows: set[str]) -> set[str]:
    """Return the quantities that depend on no product and no memory."""
    found = set(rows)
    for quantity in inside:
        if not heavy(quantity) and found.issuperset(quantity.reads()):
            found.add(quantity.name)
    return found - rows
