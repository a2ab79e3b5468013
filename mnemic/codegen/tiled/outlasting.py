"""A lean gradient keeps little in registers from one product to the next.

The steps of a stage fall into parts, each of which begins with a product. What a part reads of
earlier ones (arguments, memories, and rows that took products: an error, residuals, scores) lies in
the device's memory and is loaded where the part reads it. What takes no product is computed once a
stage, and stays in registers within it, as matrices do.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import ROWS, SOURCES, TALL, Held, Layout, Row
from mnemic.codegen.tiled.schedule import Stage, Step
from mnemic.codegen.tiled.swept.steps import Scratch, Store


@dataclass(frozen=True)
class Fresh:
    """Behind it all threads see what each has stored, and what was loaded is loaded anew."""


Between = Fresh | Row | Held | Scratch | Store


@dataclass(frozen=True)
class Lean:
    """What a lean cut does between two steps, and others do not."""

    steps: tuple[Between, ...]


Part = tuple[Row | Quantity | Lean, ...]
"""The steps of a stage."""


def parted(lay: Layout, stages: Iterable[Stage], cheap: set[str]) -> list[Part]:
    """The steps of each stage, and what a lean cut does between them; ``cheap`` is what takes no
    product."""
    every: tuple[Row | Held, ...] = (*lay.rows, *lay.given, *lay.states)
    loads = {load.name: load for load in every}
    parts = _Parts(lay, cheap, loads)
    found = [[*parts.steps(stage)] for stage in stages]
    return [tuple(_joined(_stored(steps, parts.read))) for steps in found]


def plain(stage: Stage) -> Part:
    """The steps of a stage of which a lean cut loads no more than memories."""
    return tuple(Lean((step,)) if isinstance(step, Held) else step for step in stage.steps)


@dataclass(frozen=True)
class Scratches:
    """Where rows lie that a lean cut stores."""

    lay: Layout
    parts: Iterable[Part]

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """What is stored along each axis, in order."""
        found: dict[str, list[str]] = {}
        between = (s for part in self.parts for x in part if isinstance(x, Lean) for s in x.steps)
        for step in between:
            if isinstance(step, Store):
                found.setdefault(step.scratch.size, []).append(step.scratch.name)
        return found

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """How many rows are stored along each axis."""
        return tuple((size, len(names)) for size, names in self.names.items())

    def load(self, scratch: Scratch) -> str:
        """The line that loads rows."""
        return f"{scratch.name} = tiles.load_{self._shape(scratch)}({self._place(scratch)}, REAL)"

    def store(self, store: Store) -> str:
        """The line that stores them."""
        found = store.scratch
        return f"tiles.store_{self._shape(found)}({self._place(found)}, {found.name})"

    def _shape(self, found: Scratch) -> str:
        return "rows" if len(self.lay.sizes(found.name)) == 2 else "vector"

    def _place(self, found: Scratch) -> str:
        """The pointer, the number, and the places."""
        names, sizes = self.names[found.size], self.lay.sizes(found.name)
        number = "memory" if found.size == self.lay.split else "own"
        number = f"{len(names)} * {number} + {names.index(found.name)}"
        number = f"({number}) * {SOURCES if self.lay.sourced else ROWS}"
        if len(sizes) == 2:
            number += f", 1, {at(sizes[0])}, {sizes[0]}"
        return f"scratch_{found.size}, {number}, {at(found.size)}, {found.size}"


def at(size: str) -> str:
    """The places along an axis."""
    return "t" if size == ROWS else f"at_{size}"


@dataclass
class _Parts:
    """Where a lean cut loads what it reads."""

    lay: Layout
    cheap: set[str]
    loads: dict[str, Row | Held]
    read: dict[str, Scratch] = field(default_factory=dict)
    """Rows that are loaded."""
    made: set[str] = field(default_factory=set)
    """Rows that were computed."""
    here: set[str] = field(default_factory=set)
    """What was loaded in this part, or computed in it or in the one before."""
    own: set[str] = field(default_factory=set)
    """What was computed in this part."""
    fresh: bool = False
    """Whether what it loads is loaded anew."""

    def steps(self, stage: Stage) -> Iterator[Step | Fresh | Scratch]:
        """The steps of a stage, with loads."""
        now = -1
        for step, part in zip(stage.steps, self._numbers(stage), strict=True):
            if part > now:
                now, self.here, self.own, self.fresh = part, self.own, set(), False
            if isinstance(step, Quantity):
                for name in dict.fromkeys(step.reads()):
                    yield from self._load(name)
                self.here.add(step.name)
                self.own.add(step.name)
                self.made |= {step.name} if self._outlasts(step.name) else set()
                yield step
            else:
                yield from self._load(step.name)
        self.fresh = False
        for name in stage.ends:
            yield from self._load(name)

    def _load(self, name: str) -> Iterator[Step | Fresh | Scratch]:
        """The load of something that this part has not."""
        if name in self.here or name not in {*self.loads, *self.made}:
            return
        if not self.fresh:
            yield Fresh()
        self.fresh = True
        self.here.add(name)
        if name in self.made:
            self.read[name] = Scratch(name, self.lay.sizes(name)[-1])
            yield self.read[name]
        else:
            yield self.loads[name]

    def _numbers(self, stage: Stage) -> list[int]:
        """The part of each step: a load, and what is cheap, belong to what reads it first."""
        counts, count = [], 0
        for step in stage.steps:
            count += isinstance(step, Quantity) and heavy(step, self.lay.axes.table)
            counts.append(count)
        readers: dict[str, int] = {}
        found = []
        for step, heavies in zip(reversed(stage.steps), reversed(counts), strict=True):
            late = not isinstance(step, Quantity) or step.name in self.cheap
            number = readers.get(step.name, heavies) if late else heavies
            found.append(number)
            for name in step.reads() if isinstance(step, Quantity) else ():
                readers[name] = min(number, readers.get(name, number))
        return found[::-1]

    def _outlasts(self, name: str) -> bool:
        """Whether a quantity is stored if it is read later: rows or a vector that took products."""
        sizes = self.lay.sizes(name)
        known = set(sizes) <= {*TALL, *self.lay.channels}
        rows = len(sizes) == 1 or (len(sizes) == 2 and sizes[0] in TALL)
        return name not in self.cheap and known and rows


def _stored(
    steps: list[Step | Fresh | Scratch], read: dict[str, Scratch]
) -> Iterator[Row | Quantity | Lean]:
    """The steps, with stores of what is read later."""
    again = {step.name for step in steps if isinstance(step, Row)}
    for step in steps:
        if isinstance(step, Row) and step.name in again:
            again.discard(step.name)
            yield step
        elif isinstance(step, Quantity):
            yield step
            if step.name in read:
                yield Lean((Store(read[step.name]),))
        else:
            yield Lean((step,))


def _joined(steps: Iterable[Row | Quantity | Lean]) -> Iterator[Row | Quantity | Lean]:
    """The steps, with those of lean cuts together that follow each other."""
    for lean, group in groupby(steps, lambda step: isinstance(step, Lean)):
        if not lean:
            yield from group
        else:
            yield Lean(tuple(s for step in group if isinstance(step, Lean) for s in step.steps))
