"""In which order a chunk goes through a memory that is too large for one program's registers.

A quantity along an axis is computed in the sweep of its level (``levels``). Rows that took products
are stored for the sweeps that need them later; memories are loaded, and what is made of them is
computed, where it is read. The next memories come in the last sweep.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from mnemic.codegen.plan import Fused, Product, Quantity
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import TALL, Held, Row, Stored
from mnemic.codegen.tiled.schedule import Order, light
from mnemic.codegen.tiled.swept.along_axis import curved, rest, summands
from mnemic.codegen.tiled.swept.carried import carried
from mnemic.codegen.tiled.swept.sections import (
    End,
    Load,
    Loop,
    Scratch,
    Section,
    Step,
    Store,
    Sum,
)
from mnemic.codegen.tiled.swept.sweep_counts import Levels

OPERANDS = 2
"""Rows of channels that a loop multiplies by its blocks, at most, where it can be two loops."""


@dataclass
class Sweeps(Levels):
    """The sections of a chunk that goes along some axes."""

    also: tuple[Held, ...] = ()
    """Memories that stand under another name."""
    keeps: bool = True
    """Whether rows that later sweeps need are stored for them."""
    anew: bool = True
    """Whether each section loads and computes anew what is cheap, so that nothing holds it."""
    scratch: dict[str, Scratch] = field(default_factory=dict, init=False)
    """What later sweeps load instead of computing it anew."""
    found: list[Section] = field(default_factory=list, init=False)

    def sections(self) -> list[Section]:
        """Return the sweeps in order, and what comes after the last.

        Raises ``NoTiles`` where a quantity is neither a sum over the axes nor goes along them.
        """
        if not self.found:
            sections = list(map(self._storing, self._sections()))
            carries = self.keeps and self.anew and self.lay.chunked
            self.found = carried(self, sections) if carries else sections
            self._noted(step for section in self.found for step in section.steps)
        return self.found

    def places(self, size: str) -> list[str]:
        """Name what is stored of rows along an axis, in order."""
        return [name for name, found in self.scratch.items() if found.size == size]

    def stored(self) -> Stored:
        """Count the rows that are stored along each axis."""
        self.sections()  # which know what is stored
        sizes = dict.fromkeys((*self.along, *(found.size for found in self.scratch.values())))
        return tuple(((size,), count) for size in sizes if (count := len(self.places(size))))

    def _storing(self, section: Section) -> Section:
        """Return a section whose loops store what later ones load."""
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
            self.check(name)
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
            order.done -= again if self.anew else set()
            steps = [s for name in (*ready, *ahead) for s in self._compute_missing(order, name)]
            found.append(Section(tuple(steps), tuple(ready), loops))
        return found

    def _compute_missing(self, order: Order[Row | Held], name: str) -> Iterator[Load | Quantity]:
        """Yield what is missing of a quantity along no axis; sums are there when asked for."""
        for step in order.until(name):
            if isinstance(step, Quantity) and self.crosses(step.name) and not rest(step):
                continue
            yield step

    def _plain(self) -> dict[str, Quantity]:
        """Return the quantities along no swept axis, without what they sum over one."""
        return {name: q for name, q in self.inside.items() if not self.axis(name)}

    def _loads(self, size: str) -> dict[str, Row | Held]:
        """Return what is loaded along an axis, or along none, where memories stay in registers."""
        held = (*self.lay.states, *self.lay.given, *self.also) if size else ()
        loads: tuple[Row | Held, ...] = (*self.lay.rows, *held)
        own = {size} if size else set()
        return {load.name: load for load in loads if set(load.sizes) & set(self.along) == own}

    def _loops(
        self, sums: list[str], ends: list[str], last: list[str], made: set[str]
    ) -> Iterator[Loop]:
        for size in self.along:
            inside = {n: q for n, q in self.inside.items() if self.axis(n) == size}
            own = [n for n in sums if self.crosses(n) == size]
            searches = [n for n in own if self.searched(n)]
            final = [n for n in last if self.axis(n) == size]
            known = set(made)
            order, again = self._order(size, inside, known)
            steps: list[Step] = []
            for name in self._ahead(inside, searches, made):
                order.done -= again
                steps += order.until(name)
            for name in (n for n in own if n not in searches):
                order.done -= again
                more = [*self._summed(order, name)]
                parts = self.lay.chunked and steps and not final
                if parts and len(self._operands([*steps, *more])) > OPERANDS:
                    yield (loop := Loop(size, self._noted(self._latest(steps))))
                    known |= loop.made
                    order, again = self._order(size, inside, known)
                    steps, more = [], [*self._summed(order, name)]
                steps += more
            for name in (n for n in ends if self.axis(n) == size):
                order.done -= again
                steps += [*order.until(name), End(name)]
            for name in final:
                order.done -= again
                steps += order.until(name)
            loop = Loop(size, self._noted(self._latest(steps)))
            if loop.steps or final:
                yield loop
            for name in searches:
                order, _ = self._order(size, inside, known | loop.made)
                yield Loop(size, self._noted(self._summed(order, name)), search=True)

    def _order(
        self, size: str, inside: dict[str, Quantity], made: set[str]
    ) -> tuple[Order[Row | Held | Scratch], set[str]]:
        """Return the order of a loop's steps behind what earlier loops have made, and which of them
        are done anew for each sum."""
        loads = self._loads(size) | {n: Scratch(n, size) for n in self._dear(inside, made)}
        again = set(loads) | light(self.lay, [*inside.values()], set(loads))
        return Order(self.lay, inside, loads), {n for n in again if not self._rows(n)}

    def _operands(self, steps: list[Step]) -> set[str]:
        """Name the rows of channels that a loop multiplies by blocks: each warp holds them all."""
        found: set[str] = set()
        channels = {*self.lay.channels} - {*self.along}
        for step in steps:
            quantity = step.quantity if isinstance(step, Sum) else step
            op = quantity.op if isinstance(quantity, Quantity) else None
            product = op.product if isinstance(op, Fused) else op
            if isinstance(product, Product) and not product.flip_left:
                sizes = self.lay.sizes(product.left)
                if sizes[0] in TALL and sizes[-1] in channels:
                    found.add(product.left)
        return found

    def _ahead(
        self, inside: dict[str, Quantity], searches: list[str], made: set[str]
    ) -> Iterator[str]:  # fmt: skip
        """Yield rows that took products and that searches read, which are computed before: once."""
        behind: set[str] = set()
        ahead = list(searches)
        while ahead:
            reads = set(self.inside[ahead.pop()].reads()) & set(inside)
            ahead += reads - behind
            behind |= reads
        yield from (name for name in self._dear(inside, behind) if name not in made)

    def _noted(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """Note that what these steps load is to be stored, and return them."""
        found = tuple(steps)
        self.scratch |= {step.name: step for step in found if isinstance(step, Scratch)}
        return found

    def _summed(self, order: Order[Row | Held | Scratch], name: str) -> Iterator[Step]:
        """Yield what a sum reads along its axis, and the sum."""
        reads = [r for r in self.inside[name].reads() if self.axis(r) == self.crosses(name)]
        for read in sorted(reads, key=lambda n: -order.weight(n)):
            yield from order.until(read)
        yield Sum(self.inside[name])

    def _dear(self, inside: dict[str, Quantity], made: set[str]) -> Iterator[str]:
        """Yield rows that earlier sweeps have made by products: one, a function of one, or several.

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
            dear = len(leaves[name]) > 1 or (bool(leaves[name]) and (product or curved(quantity)))
            if self.keeps and dear and name in made and self._rows(name):
                yield name

    def _product(self, quantity: Quantity) -> bool:
        """Return whether a quantity takes products of matrices, or of a matrix and a vector."""
        axes = max((len(self.lay.sizes(read)) for read in quantity.reads()), default=0)
        return heavy(quantity) or axes > len(quantity.axes)

    def _rows(self, name: str) -> bool:
        """Return whether a quantity is a chunk's rows along an axis, or a token's vector.

        Rows that are loaded and that nothing reads, as keys beside a rate of zero, are none.
        """
        if name not in self.lay.plan.graph:
            return False
        sizes = self.lay.sizes(name)
        return sizes[0] in TALL if len(sizes) == 2 else not self.lay.chunked

    def _latest(self, steps: list[Step]) -> list[Step]:
        """Return the steps with a sum of rows against channels last (``latest`` tells why)."""
        found = [i for i, step in enumerate(steps) if isinstance(step, Sum) and self._wide(step)]
        if not found:
            return steps
        place = found[-1]
        last = steps[place]
        if place == len(steps) - 1:
            return steps
        assert isinstance(last, Sum)
        begin, reads = place, set(summands(last.quantity))
        while begin and isinstance(held := steps[begin - 1], Held) and held.name in reads:
            begin -= 1
        loads = self._loads(self.crosses(last.quantity.name)).values()
        own = [load for load in loads if isinstance(load, Held) and load.name in reads]
        return [*steps[:begin], *steps[place + 1 :], *own, last]

    def _wide(self, step: Sum) -> bool:
        """Return whether a sum is a product with a chunk's rows and channels that are no rows."""
        sizes = self.lay.sizes(step.quantity.name)
        heavy = isinstance(step.quantity.op, Product | Fused)
        return heavy and len(sizes) == 2 and sizes[0] in TALL and sizes[1] not in TALL
