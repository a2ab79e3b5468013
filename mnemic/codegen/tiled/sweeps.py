"""In which order a chunk goes through a memory that is too large for one program's registers.

Where an axis of the memories (the hidden channels of an MLP, the features of an expanded map) is
only ever summed over, a chunk can go along it block by block, with the memories in the device's
memory. What depends on a sum over the axis waits until all blocks are through: so there are as many
sweeps as sums depend on sums,

    level(q) = max over what q reads of  level(r) + [r lies along an axis that q does not],

a quantity along the axis is computed in the sweep of its level, and again in each later one that
needs it; the next memories in the last.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations

from mnemic.codegen.plan import Call, Fused, Given, Product, Quantity
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.functions import LIKE
from mnemic.codegen.tiled.layout import TALL, Held, Layout, Row
from mnemic.codegen.tiled.schedule import Order, light

TOTALS = {"total": -1, "total_rows": -2}
"""Functions that sum over an axis, counted from the last."""

Load = Row | Held


@dataclass(frozen=True)
class Sum:
    """A quantity that is summed over the blocks of a loop."""

    quantity: Quantity


@dataclass(frozen=True)
class End:
    """Something along the axis that is known, to be stored."""

    name: str


Step = Load | Quantity | Sum | End


@dataclass(frozen=True)
class Loop:
    """A sweep along one axis: the steps of a block."""

    size: str
    steps: tuple[Step, ...]

    @property
    def sums(self) -> tuple[Quantity, ...]:
        """What is summed over its blocks."""
        return tuple(step.quantity for step in self.steps if isinstance(step, Sum))


@dataclass(frozen=True)
class Section:
    """What is computed before a sweep, which ends are known by then, and the sweep's loops."""

    steps: tuple[Load | Quantity, ...]
    ends: tuple[str, ...]
    loops: tuple[Loop, ...]


@dataclass
class Sweeps:
    """A layout whose memories are gone through along some axes.

    ``ends`` are to be known as soon as they can be, ``last`` (the next memories) in the last sweep.
    """

    lay: Layout
    along: tuple[str, ...]
    inside: dict[str, Quantity]
    ends: tuple[str, ...]
    last: tuple[str, ...]
    levels: dict[str, int] = field(default_factory=dict)

    def axis(self, name: str) -> str:
        """The swept axis that a quantity lies along, or none.

        Raises ``NoTiles`` where it lies along two.
        """
        found = [size for size in self.lay.sizes(name) if size in self.along]
        if len(found) > 1:
            raise NoTiles(f"{name} lies along two axes that are gone along by blocks")
        return found[0] if found else ""

    def level(self, name: str) -> int:
        """How many sweeps are done when it can be computed."""
        if name not in self.levels:
            quantity = self.inside.get(name)
            reads = quantity.reads() if quantity else ()
            self.levels[name] = max((self._after(name, read) for read in reads), default=0)
        return self.levels[name]

    def _after(self, name: str, read: str) -> int:
        own, other = self.axis(name), self.axis(read)
        if other in ("", own):
            return self.level(read)
        if own or other not in summed(self.lay, self.inside[name]):
            raise NoTiles(f"{name} is no sum over {other}")
        return self.level(read) + 1

    def crosses(self, name: str) -> str:
        """The axis that a quantity sums over, of those that are swept, or none."""
        own = self.axis(name)
        for read in self.inside[name].reads() if name in self.inside else ():
            if self.axis(read) not in ("", own):
                return self.axis(read)
        return ""

    def sweep(self, name: str) -> int:
        """The sweep in which a sum is made."""
        across = (read for read in self.inside[name].reads() if self.axis(read))
        return max(map(self.level, across))

    def sections(self) -> list[Section]:
        """The sweeps in order, and what comes after the last.

        Raises ``NoTiles`` where a quantity is neither a sum over the axes nor goes along them.
        """
        needed = self._needed((*self.ends, *self.last))
        for name in needed:
            self._check(name)
        sums = [name for name in self.inside if name in needed and self.crosses(name)]
        final = max([
            *map(self.sweep, sums), *(self.level(n) for n in (*self.ends, *self.last)
                                      if self.axis(n)), 0,
        ])  # fmt: skip
        found: list[Section] = []
        order = Order(self.lay, self._plain(), self._loads(""))
        again = set(order.rows) | light(self.lay, [*order.inside.values()], set(order.rows))
        stored: set[str] = set()
        for number in range(final + 2):
            mine = [name for name in sums if self.sweep(name) == number]
            own = [n for n in self.ends if self.axis(n) and self.level(n) == number]
            late = [n for n in self.last if self.axis(n)] if number == final else []
            loops = tuple(self._loops(mine, own, late)) if number <= final else ()
            ready = [
                n for n in self.ends
                if not self.axis(n) and n not in stored and self.level(n) <= number
            ]  # fmt: skip
            stored |= set(ready)
            ahead = [n for loop in loops for n in self.outside(loop)]
            if number == final + 1:
                ahead += [n for n in self.last if not self.axis(n)]
            order.done -= again
            steps = [s for name in (*ready, *ahead) for s in self._asked(order, name)]
            found.append(Section(tuple(steps), tuple(ready), loops))
        return found

    def _asked(self, order: Order[Load], name: str) -> Iterator[Load | Quantity]:
        """What is missing of a quantity along no axis; sums are there when they are asked for."""
        for step in order.until(name):
            if isinstance(step, Quantity) and self.crosses(step.name) and not _rest(step):
                continue
            yield step

    def _needed(self, ends: Iterable[str]) -> set[str]:
        found: set[str] = set()
        ahead = list(ends)
        while ahead:
            name = ahead.pop()
            if name not in found:
                found.add(name)
                ahead += self.inside[name].reads() if name in self.inside else ()
        return found

    def _check(self, name: str) -> None:
        """Along an axis only what nothing mixes."""
        self.level(name)
        quantity, own = self.inside.get(name), self.axis(name)
        if quantity and own and own in mixed(self.lay, quantity):
            raise NoTiles(f"{name} mixes what lies along {own}")

    def _plain(self) -> dict[str, Quantity]:
        """Quantities along no swept axis, without what they sum over one."""
        return {name: q for name, q in self.inside.items() if not self.axis(name)}

    def _loads(self, size: str) -> dict[str, Load]:
        """What is loaded along an axis, or along none; memories along none stay in registers."""
        held = (*self.lay.states, *self.lay.given) if size else ()
        loads: tuple[Load, ...] = (*self.lay.rows, *held)
        return {load.name: load for load in loads if self.axis(load.name) == size}

    def _loops(self, sums: list[str], ends: list[str], last: list[str]) -> Iterator[Loop]:
        for size in self.along:
            inside = {n: q for n, q in self.inside.items() if self.axis(n) == size}
            order = Order(self.lay, inside, self._loads(size))
            steps: list[Step] = []
            for name in sums:
                if self.crosses(name) == size:
                    reads = [r for r in self.inside[name].reads() if self.axis(r) == size]
                    for read in sorted(reads, key=lambda n: -order.weight(n)):
                        steps += order.until(read)
                    steps.append(Sum(self.inside[name]))
            for name in (n for n in ends if self.axis(n) == size):
                steps += [*order.until(name), End(name)]
            for name in (n for n in last if self.axis(n) == size):
                steps += order.until(name)
            if steps or any(self.axis(name) == size for name in last):
                yield Loop(size, tuple(steps))

    def outside(self, loop: Loop) -> list[str]:
        """What a loop reads that lies along no axis."""
        found: dict[str, None] = {}
        for step in loop.steps:
            quantity = step.quantity if isinstance(step, Sum) else step
            if isinstance(quantity, Quantity):
                reads = _summands(quantity) if isinstance(step, Sum) else quantity.reads()
                found |= dict.fromkeys(read for read in reads if not self.axis(read))
        return list(found)


def _rest(quantity: Quantity) -> bool:
    """Whether more than a sum is left to do of a quantity: something that it is added to."""
    return isinstance(quantity.op, Fused)


def _summands(quantity: Quantity) -> tuple[str, ...]:
    match quantity.op:
        case Fused(product=product):
            return (product.left, product.right)
        case _:
            return quantity.reads()


def summed(lay: Layout, quantity: Quantity) -> set[str]:
    """The sizes over which a quantity is a sum."""
    match quantity.op:
        case Product() as product:
            return {lay.sizes(product.left)[0 if product.flip_left else 1]}
        case Fused(product=product):
            return {lay.sizes(product.left)[0 if product.flip_left else 1]}
        case Call(function=function, arguments=arguments) if function in TOTALS:
            return {lay.sizes(arguments[0])[TOTALS[function]]}
        case Call(function=function):
            return _sizes(lay, quantity, lay.axes.table[function].sums)
        case _:
            return set()


def mixed(lay: Layout, quantity: Quantity) -> set[str]:
    """The sizes along which a quantity's entries depend on each other."""
    match quantity.op:
        case Call(function=function):
            return _sizes(lay, quantity, lay.axes.table[function].mixes)
        case _:
            return set()


def _sizes(lay: Layout, quantity: Quantity, letters: str) -> set[str]:
    """The sizes of a function's axes, by its own letters."""
    assert isinstance(quantity.op, Call)
    found: set[str] = set()
    function = lay.axes.table[quantity.op.function]
    for argument, taken in zip(quantity.op.arguments, function.takes, strict=False):
        own = lay.plan.axes(argument) if taken == LIKE else tuple(taken)
        found |= {s for a, s in zip(own, lay.sizes(argument), strict=True) if a in letters}
    return found


def subsets(sizes: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All choices of some of them, the smallest first."""
    numbers = range(1, len(sizes) + 1)
    return list(chain.from_iterable(combinations(sizes, number) for number in numbers))
