"""The statements of a chunk that goes along an axis of the memory beside the pairs, block by block.

``stages`` tells what each sweep and each pass does. Rows along the axis that a later stage reads
are kept in the device's memory, where all threads of the program see them behind a barrier.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mnemic.codegen.plan import Map, Quantity
from mnemic.codegen.streamed.block import Block
from mnemic.codegen.streamed.body import Body
from mnemic.codegen.streamed.lines import cited, value
from mnemic.codegen.streamed.split_block import SplitBlock
from mnemic.codegen.streamed.stages import Stages
from mnemic.codegen.tiled.layout import ROWS, TALL
from mnemic.codegen.tiled.swept import loop

Tiles = tuple[int, int]
"""Counts of tiles: of a chunk's rows, and of what its windows read."""

WHOLE, OPERANDS = "kept_rows", "kept_operands"
"""Where rows along the axis are kept: as they are, or rounded as products take them."""


@dataclass(frozen=True)
class Room:
    """Where sweeps keep rows along the axis: in memory of the program's own, tile behind tile."""

    stages: Stages

    @cached_property
    def places(self) -> dict[str, list[str]]:
        """What lies in which memory, in order."""
        found: dict[str, list[str]] = {WHOLE: [], OPERANDS: []}
        for name in self.stages.stored_at:
            found[OPERANDS if self.stages.rounded(name) else WHOLE].append(name)
        return {pointer: names for pointer, names in found.items() if names}

    def tiles(self, pointer: str) -> Tiles:
        """Return how many tiles a memory has."""
        return self._counted(self.places.get(pointer, []))

    def head(self) -> Iterator[str]:
        """Yield where a program's own tiles begin."""
        for pointer in self.places:
            yield f"within_{pointer} = memory * ({_rows(self.tiles(pointer))})"

    def _counted(self, names: list[str]) -> Tiles:
        tall = sum(self._tall(name) == ROWS for name in names)
        return tall, len(names) - tall

    def _tall(self, name: str) -> str:
        return self.stages.found.lay.sizes(name)[0]

    def load(self, name: str) -> str:
        """Write the load of a block of rows that were kept."""
        return f"tiles.load_rows({self._at(name)}, REAL)"

    def store(self, name: str) -> str:
        """Write the store of a block of rows that are kept."""
        return f"tiles.store_rows({self._at(name)}, {self.stages.found.say(name)})"

    def _at(self, name: str) -> str:
        size, tall = self.stages.along, self._tall(name)
        pointer, names = next((p, names) for p, names in self.places.items() if name in names)
        before = _rows(self._counted(names[: names.index(name)]))
        first = f"within_{pointer} + {before}" if before else f"within_{pointer}"
        rows, at = ("C", "t") if tall == ROWS else (tall, f"at_{tall}")
        return f"{pointer}, {first}, 1, {at}, {rows}, at_{size}, {size}"


def _rows(tiles: Tiles) -> str:
    """Write how many rows so many tiles have; empty for none."""
    parts = zip(tiles, ("C", "SOURCES"), strict=True)
    return " + ".join(f"{count} * {size}" for count, size in parts if count)


@dataclass
class Around(Body):
    """The quantities without the axis, and the passes, which loop along it for each block of
    pairs."""

    stages: Stages = field(kw_only=True)

    room: Room = field(kw_only=True)

    def block(self, streamed: list[Quantity], sums: list[Quantity], running: set[str]) -> Block:
        return SplitBlock(self, streamed, sums, running, stages=self.stages, load=self.room.load)

    def aside(self, name: str) -> bool:
        return self.stages.lies(name)

    def light(self, name: str) -> bool:
        """Return whether rows of channels are loaded, or a sum of such, and so are recomputed in
        every block: kept as operands of products, they would take each warp's registers."""
        lay = self.found.lay
        if name in {row.name for row in lay.rows}:
            return len(lay.sizes(name)) > 1
        quantity = self.passes.inside.get(name)
        wide = len(lay.sizes(name)) > 1 and lay.sizes(name)[1] not in (*TALL, self.stages.along)
        if quantity is None or not wide or not isinstance(quantity.op, Map):
            return False
        reads = [r for r in self.passes.reads(quantity) if len(self.found.plan.axes(r)) > 1]
        return sum(not self.light(r) for r in reads) <= 1

    def waiting(self, end: str) -> Quantity | None:
        found = super().waiting(end)
        return None if found is None or self.stages.crosses(found) else found


@dataclass
class Swept:
    """Writes a chunk's sweeps and passes in order."""

    body: Around
    fills: list[str]
    """What is stored along the axis that no statement computes."""

    @property
    def stages(self) -> Stages:
        """When what is done."""
        return self.body.stages

    def lines(
        self, ends: Mapping[str, list[str]], rewrites: dict[str, str], late: Mapping[str, list[str]]
    ) -> Iterator[str]:  # fmt: skip
        """Yield all stages; what does not lie along the axis is stored as soon as it is known."""
        stages, body = self.stages, self.body
        waiting = {n: stores for n, stores in ends.items() if not stages.lies(n)}
        for time in range(stages.final + 1):
            if time % 2:
                now = rewrites if stages.rewriting(time) else {}
                if stages.passed(time) or now:
                    yield from body.passing(stages.passed(time), now)
            else:
                yield from self._sweep(time, ends, rewrites, late)
            if time < stages.last_sum:
                for end in [n for n in waiting if stages.known(n) <= time + 1]:
                    yield from body.stored(end, waiting.pop(end))
                for end in waiting:
                    yield from self._narrowed(end, time + 1)
        yield from body.finished(waiting, {n: s for n, s in late.items() if not stages.lies(n)})

    def _narrowed(self, name: str, time: int) -> Iterator[str]:
        """Yield quantities of one number a row (or one in all) as soon as their larger inputs are
        known: they wait in fewer registers."""
        body, stages = self.body, self.stages
        quantity = body.passes.inside.get(name)
        reads = body.passes.reads(quantity) if quantity else ()
        if quantity is None or not reads or name in body.done or stages.lies(name):
            return
        if stages.known(name) > time:
            for read in (r for r in reads if not body.found.streams(r)):
                yield from self._narrowed(read, time)
        elif len(quantity.axes) < min(2, max(len(body.found.plan.axes(r)) for r in reads)):
            yield from body.until(name)

    # -- a sweep -----------------------------------------------------------------------------

    def _sweep(
        self, time: int, ends: Mapping[str, list[str]], rewrites: dict[str, str],
        late: Mapping[str, list[str]],
    ) -> Iterator[str]:  # fmt: skip
        stages, body, last = self.stages, self.body, time == self.stages.last_sweep
        now = rewrites if stages.rewriting(time) else {}
        if not (stages.targets(time) or now or (last and self.fills)):
            return
        outside = stages.outside(time)
        for name in body.ordered(n for n in outside if not body.light(n)):
            yield from body.until(name)
        for name in body.ordered(self._behind(outside)):  # sums that light rows are made of
            yield from body.until(name)
        body.done -= {name for name in body.done if body.light(name)}
        for quantity in stages.summed(time):
            yield from body.begun(quantity)
        yield from loop(stages.along, body.indent)
        inner = self._inner(time)
        for quantity in (q for q in stages.summed(time) if stages.early(q)):
            yield from self._summed(inner, quantity)
        yield from self._inner_passes(inner, time, now)
        stored = {n: s for n, s in ends.items() if stages.lies(n)} if last else {}
        behind = {n: s for n, s in late.items() if stages.lies(n)} if last else {}
        yield from self._block(inner, time, stored, behind)
        body.done |= {q.name for q in stages.summed(time)}
        if any(when == time for when in stages.stored_at.values()):
            yield f"{body.pad}tl.debug_barrier()"

    def _behind(self, names: list[str]) -> list[str]:
        """Return the sums over pairs that passes have taken and these rows are made of."""
        statements = self.body.passes.needed(tuple(names))
        return [q.name for q in statements if q.name in self.body.summed]

    def _inner(self, time: int) -> Body:
        """Return what writes the statements of a block."""
        body, stages = self.body, self.stages
        kept = {n: self.body.room.load(n) for n, when in stages.stored_at.items() if when < time}
        return Body(
            body.found, body.passes, body.numbers, body.first_block, body.indent + 4,
            lasting=body.lasting, done=set(body.done), loads=body.loads, carried=kept,
        )  # fmt: skip

    def _inner_passes(self, inner: Body, time: int, rewrites: dict[str, str]) -> Iterator[str]:
        """Yield the sums over pairs along the axis, those first that others wait for."""
        demanded = {q.name for q in self.stages.demanded(time)}
        sums = [q for q in self.stages.inner if q.name in demanded]
        levels = sorted({inner.passes.core(q) for q in sums}) or [0] * bool(rewrites)
        for level in levels:
            own = [q for q in sums if inner.passes.core(q) == level]
            yield from inner.passing(own, rewrites if level == levels[-1] else {})
            inner.done |= self.body.done
        self.body.alive = tuple(map(max, self.body.alive, inner.alive))  # type: ignore[assignment]

    def _block(
        self, inner: Body, time: int, ends: Mapping[str, list[str]], late: Mapping[str, list[str]]
    ) -> Iterator[str]:  # fmt: skip
        """Yield what a block computes and stores, last of all what changes what the block reads."""
        stages = self.stages
        for end, stores in ends.items():
            yield from inner.stored(end, stores)
        for name in (n for n, when in stages.stored_at.items() if when == time):
            yield from inner.stored(name, [self.body.room.store(name)])
        for end in late:
            yield from inner.until(end)
        late_sums = [q for q in stages.summed(time) if not stages.early(q)]
        for quantity in sorted(late_sums, key=self._wide):
            yield from self._summed(inner, quantity)
        yield from [f"{inner.pad}tl.debug_barrier()"] * bool(late)
        yield from (f"{inner.pad}{text}" for stores in late.values() for text in stores)
        if time == stages.last_sweep:
            yield from (f"{inner.pad}{text}" for text in self.fills)

    def _wide(self, quantity: Quantity) -> bool:
        """Return whether a sum is of rows against channels, which stand last (``tiled.latest``)."""
        sizes = self.body.found.lay.sizes(quantity.name)
        return len(sizes) > 1 and sizes[0] in TALL and sizes[1] not in TALL

    def _summed(self, inner: Body, quantity: Quantity) -> Iterator[str]:
        """Yield a block's part of a sum over the axis."""
        for read in inner.ordered(inner.passes.reads(quantity)):
            yield from inner.until(read)
        found = self.body.found
        comment = cited(self.body.numbers, quantity.equation)
        made = f"{inner.pad}{found.say(quantity.name)} += {value(found, quantity)}"
        yield from inner.exact(quantity, [made + (f"  # {comment}" if comment else "")])
