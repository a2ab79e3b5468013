"""In which order a chunk goes through a memory that is too large for one program's registers.

Where an axis of the memories (the hidden channels of an MLP, the features of an expanded map) is
only ever summed over, a chunk can go along it block by block, with the memories in the device's
memory. What depends on a sum over the axis waits until all blocks are through: so there are as many
sweeps as sums depend on sums,

    level(q) = max over what q reads of  level(r) + [r lies along an axis that q does not],

a quantity along the axis is computed in the sweep of its level, and again in each later one that
needs it; the next memories in the last.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations

from mnemic.codegen.plan import Call, Fused, Map, Product, Quantity
from mnemic.codegen.tiled.axes import NoTiles, taken
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import TALL, Held, Layout, Row
from mnemic.codegen.tiled.schedule import Order, light

TOTALS = {"total": -1, "total_rows": -2}
"""Functions that sum over an axis, counted from the last."""


@dataclass(frozen=True)
class Sum:
    """A quantity that is summed over the blocks of a loop."""

    quantity: Quantity


@dataclass(frozen=True)
class Scratch:
    """Rows along an axis that an earlier sweep has computed and stored."""

    name: str
    size: str


@dataclass(frozen=True)
class Store:
    """Rows along the axis that later sweeps load."""

    scratch: Scratch


@dataclass(frozen=True)
class End:
    """Something along the axis that is known, to be stored."""

    name: str


Load = Row | Held | Scratch
Step = Load | Quantity | Sum | End | Store


@dataclass(frozen=True)
class Loop:
    """A sweep along one axis: the steps of a block.

    Memories are loaded anew for each sum and each end: to read them from a cache again is cheaper
    than to keep them in registers.
    """

    size: str
    steps: tuple[Step, ...]

    @property
    def sums(self) -> tuple[Quantity, ...]:
        """What is summed over its blocks."""
        return tuple(step.quantity for step in self.steps if isinstance(step, Sum))

    def after(self, names: set[str]) -> int:
        """How many steps are done when nothing loads or computes any of these any more."""
        made = (Row, Held, Scratch, Quantity)
        found = [i for i, x in enumerate(self.steps, 1) if isinstance(x, made) and x.name in names]
        return max(found, default=0)


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
    also: tuple[Held, ...] = ()
    """Memories that stand under another name."""
    keeps: bool = True
    """Whether rows that later sweeps need are stored for them."""
    levels: dict[str, int] = field(default_factory=dict)
    scratch: dict[str, Scratch] = field(default_factory=dict)
    """What later sweeps load instead of computing it anew."""
    found: list[Section] = field(default_factory=list)

    @cached_property
    def needed(self) -> set[str]:
        """What ends and next memories depend on."""
        found: set[str] = set()
        ahead = [*self.ends, *self.last]
        while ahead:
            name = ahead.pop()
            if name not in found:
                found.add(name)
                ahead += self.inside[name].reads() if name in self.inside else ()
        return found

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
        if not self.found:
            self.found = [self._storing(section) for section in self._sections()]
        return self.found

    def places(self, size: str) -> list[str]:
        """What is stored of rows along an axis, in order."""
        return [name for name, found in self.scratch.items() if found.size == size]

    def stored(self) -> tuple[tuple[str, int], ...]:
        """How many rows are stored along each axis, where there are any."""
        found = ((size, len(self.places(size))) for size in self.along if self.sections())
        return tuple((size, count) for size, count in found if count)

    def _storing(self, section: Section) -> Section:
        """A section whose loops store what later ones load."""
        return replace(section, loops=tuple(map(self._stored, section.loops)))

    def _stored(self, loop: Loop) -> Loop:
        steps: list[Step] = []
        for step in loop.steps:
            steps.append(step)
            found = isinstance(step, Quantity) and self.scratch.get(step.name)
            if found and Store(found) not in steps:
                steps.append(Store(found))
        return replace(loop, steps=tuple(steps))

    def _sections(self) -> list[Section]:
        for name in self.needed:
            self._check(name)
        sums = [name for name in self.inside if name in self.needed and self.crosses(name)]
        final = max([
            *map(self.sweep, sums), *(self.level(n) for n in (*self.ends, *self.last)
                                      if self.axis(n)), 0,
        ])  # fmt: skip
        found: list[Section] = []
        order = Order(self.lay, self._plain(), self._loads(""))
        known = set(order.rows) | set(sums)
        again = known | light(self.lay, [*order.inside.values()], known)
        stored: set[str] = set()
        made: set[str] = set()
        for number in range(final + 2):
            mine = [name for name in sums if self.sweep(name) == number]
            own = [n for n in self.ends if self.axis(n) and self.level(n) == number]
            late = [n for n in self.last if self.axis(n)] if number == final else []
            loops = tuple(self._loops(mine, own, late, made)) if number <= final else ()
            made |= {x.name for loop in loops for x in loop.steps if isinstance(x, Quantity)}
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

    def _asked(self, order: Order[Row | Held], name: str) -> Iterator[Load | Quantity]:
        """What is missing of a quantity along no axis; sums are there when they are asked for."""
        for step in order.until(name):
            if isinstance(step, Quantity) and self.crosses(step.name) and not _rest(step):
                continue
            yield step

    def _check(self, name: str) -> None:
        """Along an axis only what nothing mixes."""
        self.level(name)
        quantity, own = self.inside.get(name), self.axis(name)
        if quantity and own and own in mixed(self.lay, quantity):
            raise NoTiles(f"{name} mixes what lies along {own}")

    def _plain(self) -> dict[str, Quantity]:
        """Quantities along no swept axis, without what they sum over one."""
        return {name: q for name, q in self.inside.items() if not self.axis(name)}

    def _loads(self, size: str) -> dict[str, Row | Held]:
        """What is loaded along an axis, or along none; memories along none stay in registers."""
        held = (*self.lay.states, *self.lay.given, *self.also) if size else ()
        loads: tuple[Row | Held, ...] = (*self.lay.rows, *held)
        own = {size} if size else set()
        return {load.name: load for load in loads if set(load.sizes) & set(self.along) == own}

    def _loops(
        self, sums: list[str], ends: list[str], last: list[str], made: set[str]
    ) -> Iterator[Loop]:
        for size in self.along:
            inside = {n: q for n, q in self.inside.items() if self.axis(n) == size}
            loads = self._loads(size) | {n: Scratch(n, size) for n in self._dear(inside, made)}
            order = Order(self.lay, inside, loads)
            again = set(loads) | light(self.lay, [*inside.values()], set(loads))
            again = {name for name in again if not self._rows(name)}
            steps: list[Step] = []
            for name in (n for n in sums if self.crosses(n) == size):
                order.done -= again
                reads = [r for r in self.inside[name].reads() if self.axis(r) == size]
                for read in sorted(reads, key=lambda n: -order.weight(n)):
                    steps += order.until(read)
                steps.append(Sum(self.inside[name]))
            for name in (n for n in ends if self.axis(n) == size):
                order.done -= again
                steps += [*order.until(name), End(name)]
            for name in (n for n in last if self.axis(n) == size):
                order.done -= again
                steps += order.until(name)
            used = [step for step in steps if isinstance(step, Scratch)]
            self.scratch |= {step.name: step for step in used}
            if steps or any(self.axis(name) == size for name in last):
                yield Loop(size, tuple(self._latest(steps)))

    def _dear(self, inside: dict[str, Quantity], made: set[str]) -> Iterator[str]:
        """Rows that earlier sweeps have computed by products: one, a function of one, or several.

        Not a multiple of one, which is sooner computed than loaded.
        """
        leaves: dict[str, set[str]] = {}
        for quantity in self.lay.plan.ordered():
            name = quantity.name
            if name not in inside:
                continue
            product = self._product(quantity)
            behind = (leaves.get(read, set()) for read in quantity.reads())
            leaves[name] = {name} if product else set().union(*behind)
            dear = len(leaves[name]) > 1 or (bool(leaves[name]) and (product or _curved(quantity)))
            if self.keeps and dear and name in made and self._rows(name):
                yield name

    def _product(self, quantity: Quantity) -> bool:
        """Whether a quantity takes products of matrices, or of a matrix and a vector."""
        axes = max((len(self.lay.sizes(read)) for read in quantity.reads()), default=0)
        return heavy(quantity, self.lay.axes.table) or axes > len(quantity.axes)

    def _rows(self, name: str) -> bool:
        """Whether a quantity is a chunk's rows along an axis, or a token's vector."""
        sizes = self.lay.sizes(name)
        return sizes[0] in TALL if len(sizes) == 2 else not self.lay.chunked

    def _latest(self, steps: list[Step]) -> list[Step]:
        """The steps with a sum of rows against channels last (``latest`` tells why)."""
        found = [i for i, step in enumerate(steps) if isinstance(step, Sum) and self._wide(step)]
        if not found:
            return steps
        place = found[-1]
        last = steps[place]
        if place == len(steps) - 1:
            return steps
        assert isinstance(last, Sum)
        begin, reads = place, set(_summands(last.quantity))
        while begin and isinstance(held := steps[begin - 1], Held) and held.name in reads:
            begin -= 1
        loads = self._loads(self.crosses(last.quantity.name)).values()
        own = [load for load in loads if isinstance(load, Held) and load.name in reads]
        return [*steps[:begin], *steps[place + 1 :], *own, last]

    def _wide(self, step: Sum) -> bool:
        """Whether a sum is a product with a chunk's rows and channels that are no rows."""
        sizes = self.lay.sizes(step.quantity.name)
        heavy = isinstance(step.quantity.op, Product | Fused)
        return heavy and len(sizes) == 2 and sizes[0] in TALL and sizes[1] not in TALL

    def outside(self, loop: Loop) -> list[str]:
        """What a loop reads that lies along no axis."""
        found: dict[str, None] = {}
        for step in loop.steps:
            quantity = step.quantity if isinstance(step, Sum) else step
            if isinstance(quantity, Quantity):
                reads = _summands(quantity) if isinstance(step, Sum) else quantity.reads()
                found |= dict.fromkeys(read for read in reads if not self.axis(read))
        return list(found)


def _curved(quantity: Quantity) -> bool:
    """Whether a quantity takes a function that is no polynomial."""
    match quantity.op:
        case Map(expr=expr):
            return not expr.is_polynomial()
        case _:
            return True


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
    """The sizes over which a quantity is a sum, or a maximum."""
    match quantity.op:
        case Product() as product:
            return {lay.sizes(product.left)[0 if product.flip_left else 1]}
        case Fused(product=product):
            return {lay.sizes(product.left)[0 if product.flip_left else 1]}
        case Call(function=function, arguments=arguments) if function in TOTALS:
            return {lay.sizes(arguments[0])[TOTALS[function]]}
        case Call(function=function):
            found = lay.axes.table[function]
            return _sizes(lay, quantity, found.sums + found.tops)
        case _:
            return set()


def tops(lay: Layout, quantity: Quantity) -> bool:
    """Whether a quantity is a maximum, not a sum."""
    op = quantity.op
    return isinstance(op, Call) and bool(lay.axes.table[op.function].tops)


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
    function = lay.axes.table[quantity.op.function]
    found: set[str] = set()
    for argument, own in zip(
        quantity.op.arguments, taken(lay.axes, quantity.op, function), strict=False
    ):
        found |= {s for a, s in zip(own, lay.sizes(argument), strict=True) if a in letters}
    return found


def subsets(sizes: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All choices of some of them, the smallest first."""
    numbers = range(1, len(sizes) + 1)
    return list(chain.from_iterable(combinations(sizes, number) for number in numbers))
