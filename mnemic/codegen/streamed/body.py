"""The statements of one chunk: those of its rows, and passes, each a loop over blocks of kept
pairs."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import networkx as nx

from mnemic.codegen.ops import called
from mnemic.codegen.plan import Call, Map, Product, Quantity
from mnemic.codegen.streamed.block import Block
from mnemic.codegen.streamed.lines import exact, line, own_rows, shape, zeros
from mnemic.codegen.streamed.pair_layout import EARLIER, PAIRS, WITHIN, Streams
from mnemic.codegen.streamed.pair_passes import Passes, beside_pairs, reads_behind
from mnemic.codegen.streamed.solution import begun, stepped
from mnemic.codegen.tiled.kernel import load_row
from mnemic.codegen.tiled.layout import ROWS, SOURCES, TALL
from mnemic.codegen.tiled.swept.along_axis import tops


@dataclass
class Body:
    """Writes a chunk's statements in order, each where it is first needed."""

    found: Streams
    passes: Passes
    numbers: dict[str, str]
    first_block: str
    indent: int
    part: str = ""
    """Which pairs passes go by where a launch has a part of the chunks: those before its rows, or
    its own."""
    lasting: bool = False
    """Whether what is put in place of a state's entries stays, chunk after chunk."""
    done: set[str] = field(default_factory=set)
    """Rows that are loaded, and quantities of rows that are known."""
    summed: set[str] = field(default_factory=set)
    """Sums over pairs that were taken."""
    wide: frozenset[str] = frozenset()
    """Products with operands that are not rounded to 16 bits: those of an iteration."""
    alive: tuple[int, int] = (0, 0)
    """Tiles of rows, and of a block, that live at once, in the pass with most."""
    loads: dict[str, str] = field(default_factory=dict)
    """Memories that are loaded where they are read."""
    loaded: set[str] = field(default_factory=set)
    """Memories loaded before: without a barrier the compiler would keep them until then."""
    carried: dict[str, str] = field(default_factory=dict)
    """Rows of the same chunk that were kept before, each with what loads it."""
    begins: dict[str, str] = field(default_factory=dict)
    """Sums over pairs that others have begun, each with what it begins with."""

    def lines(
        self, ends: Iterable[tuple[str, list[str]]], rewrites: dict[str, str],
        late: Mapping[str, list[str]] = MappingProxyType({}),
    ) -> Iterator[str]:  # fmt: skip
        """Yield all passes, and after each the quantities that are then known, with their stores.

        ``rewrites`` are the entries that replace a state's, stored in the last pass; ``late`` are
        quantities that replace entries which every pass reads, stored after all passes.
        """
        waiting = dict(ends)
        behind = self.passes.needed((*waiting, *late, *rewrites.values()))
        sums = [q for q in behind if self.passes.sums(q)]
        last = max([self.passes.core(q) for q in sums], default=-1)
        last = max([last, *(self.passes.level(n) for n in rewrites.values())])
        passes = [[q for q in sums if self.passes.core(q) == number] for number in range(last + 1)]
        for number, own in enumerate(passes):
            now = rewrites if number == last else {}
            if (own or now) and number and self.loads:
                for end in (*waiting, *late):
                    yield from self._known(end, number)
            if own or now:
                yield from self.passing(own, now)
                yield from self._places() if number < last else ()
            if number < last:
                found = [n for n in waiting if self.passes.level(n) <= number + 1]
                for end in sorted(found, key=self._memory):  # large tiles when few others are alive
                    yield from self.stored(end, waiting.pop(end))
        yield from self.finished(waiting, late)

    def finished(
        self, ends: Mapping[str, list[str]], late: Mapping[str, list[str]]
    ) -> Iterator[str]:
        """Yield the quantities that are known after all passes, those as large as memories last; at
        the very end the one whose product can come last (``tiled.latest`` says why)."""
        able = [n for n in ends if self.waiting(n) is not None]
        waits = min(able, key=lambda n: len(self.passes.inside[n].reads()), default=None)
        first = sorted((n for n in ends if n != waits), key=self._memory)
        large = next((n for n in (*first, *late) if self._memory(n)), None)
        for end in first:
            if end == large:
                yield from self._before(waits)
            yield from self.stored(end, ends[end])
        yield from self._before(waits)
        for end in late:
            yield from self.until(end)
        if waits is not None:
            yield from self.stored(waits, ends[waits])
        yield from [f"{self.pad}tl.debug_barrier()"] * bool(late)
        yield from (f"{self.pad}{text}" for stores in late.values() for text in stores)

    def stored(self, end: str, stores: list[str]) -> Iterator[str]:
        """Yield the statements of a quantity, and then its stores."""
        yield from self.until(end)
        yield from (f"{self.pad}{text}" for text in stores)

    @property
    def pad(self) -> str:
        """The statements' indentation."""
        return " " * self.indent

    @property
    def pairs(self) -> str:
        """The number of pairs to loop over, as source."""
        return "since" if self.part == EARLIER else "behind"

    # -- rows --------------------------------------------------------------------------------

    def until(self, name: str) -> Iterator[str]:
        """Yield all statements that a quantity of the chunk's rows still needs, and then its
        own."""
        if name in self.done:
            return
        self.done.add(name)
        row = next((r for r in self.found.lay.rows if r.name == name), None)
        if row is not None:
            yield f"{self.pad}{self.found.say(name)} = {self._loaded(name)}"
            return
        for own, state in self.found.own:
            if own.name == name:
                yield f"{self.pad}{self.found.say(name)} = {own_rows(self.found, state, ROWS)}"
                return
        if name in self.carried:
            yield f"{self.pad}{self.found.say(name)} = {self.carried[name]}"
            return
        if name in self.loads:
            yield from [f"{self.pad}tl.debug_barrier()"] * (name in self.loaded)
            yield f"{self.pad}{self.found.say(name)} = {self.loads[name]}"
            self.loaded.add(name)
            return
        quantity = self.passes.inside.get(name)
        if quantity is None:  # a state on chip
            return
        if self.passes.sums(quantity):
            yield from self._finished(quantity)
            return
        for read in self.ordered(self.passes.reads(quantity)):
            yield from self.until(read)
        if isinstance(quantity.op, Call) and quantity.op.function == "solution":
            yield from solved(self, quantity)
            return
        yield from self.exact(quantity, line(self.found, quantity, self.numbers, self.indent))
        self.done -= {read for read in self.passes.reads(quantity) if self._fleeting(read)}

    # -- the last product ----------------------------------------------------------------------

    def waiting(self, end: str) -> Quantity | None:
        """Return the product of rows against channels that ``end`` is, or that it alone reads; else
        ``None``."""
        inside, plan = self.passes.inside, self.found.plan
        quantity = inside.get(end)
        if quantity is None:
            return None
        reads = quantity.reads() if isinstance(quantity.op, Map) else ()
        for name in (end, *reads):
            found = inside.get(name)
            if found is None or not isinstance(found.op, Product) or self.passes.sums(found):
                continue
            sizes, memories = self.found.lay.sizes(name), map(self._memory, found.reads())
            alone = name == end or plan.graph.out_degree(name) == 1
            if alone and sizes[0] == ROWS and sizes[1] not in TALL and not any(memories):
                return found
        return None

    def _before(self, end: str | None) -> Iterator[str]:
        """Yield what an end's last product reads, and what is summed with it; else nothing."""
        product = None if end is None else self.waiting(end)
        if product is None or end is None:
            return
        others = () if product.name == end else self.passes.reads(self.passes.inside[end])
        for read in (*self.passes.reads(product), *(n for n in others if n != product.name)):
            yield from self.until(read)

    def _fleeting(self, name: str) -> bool:
        """Return whether a tile as large as a memory is recomputed wherever it is read, as loads
        and elementwise functions of them are."""
        quantity = self.passes.inside.get(name)
        entries = quantity is not None and isinstance(quantity.op, Map)
        return name in self.loads or (entries and self._memory(name))

    def _memory(self, name: str) -> bool:
        """Return whether a quantity is as large as a memory."""
        sizes = self.found.lay.sizes(name)
        return len(sizes) > 1 and not {ROWS, SOURCES, PAIRS, ""} & set(sizes)

    def exact(self, quantity: Quantity, lines: list[str]) -> list[str]:
        """Return the lines of a quantity; products of ``wide`` ones do not round their operands."""
        if quantity.name in self.wide and isinstance(quantity.op, Product):
            return exact(lines)
        return lines

    def _loaded(self, name: str) -> str:
        row = next(r for r in self.found.lay.rows if r.name == name)
        text = load_row(self.found.lay, row)
        return text.replace("REAL", "tl.float64") if name in self.found.wide else text

    def _finished(self, quantity: Quantity) -> Iterator[str]:
        """Yield the lines that add the chunk's own part to a sum over pairs."""
        assert quantity.name in self.summed, quantity.name
        op = quantity.op
        for mixed in beside_pairs(op) if isinstance(op, Call) and not tops(quantity) else ():
            yield from self.until(mixed)
            yield f"{self.pad}{self.found.say(quantity.name)} += tl.sum({self.found.say(mixed)}, 1)"

    def _known(self, name: str, over: int) -> Iterator[str]:
        """Yield the statements on the way to a quantity that are possible after so many passes: run
        later, they would have to load memories again."""
        if name in self.done or name not in self.passes.inside:
            return
        if self.passes.level(name) <= over and not self.found.streams(name):
            yield from self.until(name)
            return
        for read in self.passes.reads(self.passes.inside[name]):
            if not self.found.streams(read):
                yield from self._known(read, over)

    # -- a pass ------------------------------------------------------------------------------

    def passing(self, sums: list[Quantity], rewrites: dict[str, str]) -> Iterator[str]:
        """Yield a pass over pairs for some sums; ``rewrites`` take the place of states' entries."""
        running = {q.name for q in sums if tops(q)}
        streamed = self._streamed(sums, rewrites)
        yield from self._reads(streamed, running)
        for quantity in sums:
            yield from self.begun(quantity)
        if rewrites:  # the last entries are read by rows, too
            for name in (n for n in self._tails if not self.aside(n)):
                yield from self.until(name)
            yield f"{self.pad}tl.debug_barrier()"
        within = self.part == WITHIN
        last = "behind - since" if within else self.pairs
        blocks = f"{self.first_block}, tl.cdiv({last}, BN)"
        loop = f"tl.range({blocks}, disable_licm=True)" if rewrites else f"range({blocks})"
        yield f"{self.pad}for j in {loop}:"
        yield f"{self.pad}    at_N = {'since + ' * within}j * BN + n"
        yield f"{self.pad}    in_N = at_N < {self.pairs}"
        block = self.block(streamed, sums, running)
        yield from block.lines(rewrites)
        self._count(streamed, sums, block.most)
        yield from self.settled(sums)
        self.done |= running
        self._forget()

    def settled(self, sums: list[Quantity]) -> Iterator[str]:
        """Yield the lines that make a pass's largest logits final: 0 for empty rows."""
        for quantity in sums:
            if tops(quantity):
                say = self.found.say(quantity.name)
                yield f"{self.pad}{say} = tiles.settled({say})"

    def _places(self) -> Iterator[str]:
        """Yield the chunk's indices in a form that the compiler takes for new ones, so that a
        gradient keeps none of them in registers from one pass to the next."""
        if not (self.lasting or self.loads):
            yield f"{self.pad}row, place = tiles.anew(live, row), tiles.anew(live, place)"

    def block(self, streamed: list[Quantity], sums: list[Quantity], running: set[str]) -> Block:
        """Return what writes the statements of a pass for each block of pairs."""
        return Block(self, streamed, sums, running)

    def aside(self, name: str) -> bool:
        """Return whether rows are loaded inside each block of a pass rather than before it."""
        return False

    def _forget(self) -> None:
        """Forget quantities that are cheap to recompute before the next pass, so that it loads rows
        again."""
        lay = self.found.lay
        rows = (*lay.rows, *(own for own, _ in self.found.own))
        vectors = {row.name for row in rows if row.sizes} | set(self.loads)
        for name in list(self.done):
            quantity = self.passes.inside.get(name)
            tile = quantity is not None and len(quantity.axes) > 1 and not self.loads
            large = name in vectors or tile
            kept = quantity and (self.passes.sums(quantity) or _dear(quantity))
            if large and not kept and name not in self._tails:
                self.done.discard(name)

    @property
    def _tails(self) -> list[str]:
        """What is read of the last pairs before the chunk and of its own as one."""
        return [
            q.name for q in self.passes.inside.values()
            if reads_behind(q) and SOURCES in self.found.lay.sizes(q.name)
        ]  # fmt: skip

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Sort names of quantities, those behind long chains first."""
        return sorted(names, key=lambda n: -self.passes.weight(n))

    def _count(self, streamed: list[Quantity], sums: list[Quantity], most: int) -> None:
        """Count the tiles that live through a pass, of the chunk's rows and of a block."""
        reads = {n for q in (*streamed, *sums) for n in self.passes.reads(q)}
        through = {n for n in reads if len(self.found.plan.axes(n)) > 1} | {
            q.name for q in sums if len(q.axes) > 1}  # fmt: skip
        rows = sum(not self.found.streams(n) for n in through)
        self.alive = (max(rows, self.alive[0]), max(most, self.alive[1]))

    def _streamed(self, sums: list[Quantity], rewrites: dict[str, str]) -> list[Quantity]:
        """Return what a pass computes of each block."""
        inner = [n for q in sums for n in self.passes.sums(q)] + list(rewrites.values())
        return [q for q in self.passes.needed(tuple(inner)) if self.found.streams(q.name)]

    def _reads(
        self, streamed: list[Quantity], running: Collection[str] = ()
    ) -> Iterator[str]:  # fmt: skip
        """Yield the statements of the chunk's rows that blocks read."""
        for quantity in streamed:
            for read in self.passes.reads(quantity):
                if not self.found.streams(read) and read not in running and not self.aside(read):
                    yield from self.until(read)

    def begun(self, quantity: Quantity) -> Iterator[str]:
        """Yield what a sum over pairs starts with."""
        say, op = self.found.say(quantity.name), quantity.op
        if quantity.name in self.begins:
            yield f"{self.pad}{say} = {self.begins[quantity.name]}"
            return
        if isinstance(op, Call) and tops(quantity) and (own := beside_pairs(op)):
            for read in own:
                yield from self.until(read)
            yield f"{self.pad}{say} = tiles.tops_of({', '.join(map(self.found.say, own))})"
            return
        start = zeros(self.found, quantity)
        if tops(quantity):
            start = f"tl.full({shape(self.found, quantity)}, tiles.LOWEST, REAL)"
        yield f"{self.pad}{say} = {start}"


def solved(body: Body, x: Quantity) -> Iterator[str]:
    """Yield conjugate gradients: a pass over the pairs an iteration, until all rows are done."""
    assert isinstance(x.op, Call)
    target, diagonal, unknown, image = x.op.arguments
    outer, found = body.passes, body.found
    names = [found.say(n) for n in (x.name, target, diagonal, unknown, image)]
    inner = replace(
        outer, levels={}, weights={},
        known=outer.known | {unknown, *outer.around(unknown, image)},
    )  # fmt: skip
    held = (body.done | inner.known) - {image}
    loop = Body(found, inner, body.numbers, body.first_block, body.indent + 4, done=set(held))
    loop.wide = frozenset(nx.descendants(found.plan.graph, unknown))
    yield from begun(body.pad, names, x.op)
    yield from loop.lines([(image, [])], {})
    yield from stepped(loop.pad, names)
    rows, pairs = loop.alive
    waits = sum(len(found.plan.axes(n)) > 1 for n in outer.around(unknown, image))
    body.alive = (max(body.alive[0], rows + waits + 8), max(body.alive[1], pairs))


def _dear(quantity: Quantity) -> bool:
    operation = called(quantity)
    return operation is not None and operation.streaming.costly
