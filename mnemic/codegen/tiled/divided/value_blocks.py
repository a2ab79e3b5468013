"""The statements of a kernel whose programs loop over blocks of values: before, inside and after
that loop.

In a memory whose values may be cut no value depends on another one. So in its gradient a quantity
without an axis of values (a gradient of keys, say) is a sum over them, and nothing with such an
axis reads the sum: each block adds its part, and after the loop the sums are complete.

    before   what has no values, and what the loop reads of it
    inside   what has values, a block at a time, and of each sum the block's part
    behind   what follows from the sums
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled.divided.few_alive import few_alive
from mnemic.codegen.tiled.layout import Held, Layout, Row
from mnemic.codegen.tiled.schedule import Order, Step, light
from mnemic.codegen.tiled.swept.along_axis import mixed, summed


@dataclass(frozen=True)
class Values:
    """How each quantity of a gradient's plan relates to the axis of values."""

    lay: Layout
    sums: frozenset[str]
    """What is a sum over values, or follows from one."""

    @classmethod
    def of(cls, lay: Layout) -> "Values | None":
        """Sort a plan's quantities by whether they have values; None where something with values
        reads a sum over them, or a quantity without values reduces them otherwise than by a sum."""
        found: set[str] = set()
        size, count = lay.split, -1
        if not size:
            return cls(lay, frozenset())
        while len(found) > count:  # gradients of states are carried, so once more
            count = len(found)
            found |= {s for s, n in lay.plan.following.items() if n in found}
            for quantity in lay.plan.ordered():
                reads, name = quantity.reads(), quantity.name
                parts = any(size in lay.sizes(read) for read in reads)
                if size in lay.sizes(name):
                    if not found.isdisjoint(reads) or size in mixed(lay, quantity):
                        return None
                elif parts and (size not in summed(lay, quantity) or not found.isdisjoint(reads)):
                    return None
                elif parts or not found.isdisjoint(reads):
                    found.add(name)
        return cls(lay, frozenset(found))

    def has(self, name: str) -> bool:
        """Return whether a quantity has values."""
        return bool(self.lay.split) and self.lay.split in self.lay.sizes(name)

    def begins(self, quantity: Quantity) -> bool:
        """Return whether a quantity is a sum over the values of what it reads."""
        return not self.has(quantity.name) and any(map(self.has, quantity.reads()))


@dataclass(frozen=True)
class Blocks:
    """Loads and statements before a loop over blocks of values, inside it, and behind it."""

    before: tuple[Step, ...]
    inside: tuple[Step, ...]
    behind: tuple[Step, ...]


def blocks(
    lay: Layout, values: Values, inside: list[Quantity], ends: Collection[str]
) -> Blocks:  # fmt: skip
    """Order what some ends need: before a loop over blocks of values, inside it, and after it.

    After the loop arguments are loaded again, and what takes no product is computed again.
    """
    every: tuple[Row | Held, ...] = (*lay.rows, *lay.given)
    loads = {load.name: load for load in every}
    again = light(lay, inside, {row.name for row in lay.rows}) | {*loads}
    order = Order(lay, {q.name: q for q in inside}, loads)
    sums = [q for q in inside if values.begins(q)]
    own = [name for name in ends if values.has(name)]
    if not sums and not own:
        return Blocks((), (), few_alive(lay, _until(order, ends), ()))
    taken = [*_behind(order, values, [*own, *(r for q in sums for r in q.reads())])]
    ahead = [read for name in taken for read in order.inside[name].reads() if not values.has(read)]
    ahead += [read for q in sums for read in q.reads() if not values.has(read)]
    before = _until(order, sorted(dict.fromkeys(ahead), key=lambda name: -order.weight(name)))
    within: list[Step] = []
    for quantity in sorted(sums, key=lambda q: -order.weight(q.name)):
        for read in quantity.reads():
            within += order.until(read)
        within.append(quantity)
        order.done.add(quantity.name)
    within += _until(order, own)
    order.done -= {name for name in again - values.sums if not values.has(name)}
    added = {q.name for q in sums}
    behind = _until(order, [n for n in ends if n not in own])
    held = {read for step in behind if isinstance(step, Quantity) for read in step.reads()}
    held = (held | {*ahead}) - {q.name for q in behind}
    return Blocks(
        few_alive(lay, before, ahead), few_alive(lay, within, held | added),
        few_alive(lay, behind, ()),
    )  # fmt: skip


def _until(order: Order[Row | Held], names: Collection[str]) -> tuple[Step, ...]:
    return tuple(step for name in names for step in order.until(name))


def _behind(order: Order[Row | Held], values: Values, names: Collection[str]) -> Iterator[str]:
    """Yield what has values and is computed for these quantities."""
    found, ahead = set[str](), [name for name in names if values.has(name)]
    while ahead:
        name = ahead.pop()
        if name in order.inside and name not in found:
            found.add(name)
            ahead += [read for read in order.inside[name].reads() if values.has(read)]
            yield name
