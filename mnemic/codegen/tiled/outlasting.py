"""The leanest gradient, which keeps little in registers between products.

A lean gradient (1) loads memories in each stage that reads them. In the leanest (2) the steps of a
stage fall into parts, each of which begins with a product. What a part reads of earlier ones lies
in device memory and is loaded where the part reads it: arguments, memories, results of products,
and whatever depends on a memory (an error, residuals, scores). The results of one part are still in
registers in the next. Everything else, which takes no product, is computed once a stage.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import ROWS, SOURCES, TALL, Held, Layout, Row, Stored, at, turned
from mnemic.codegen.tiled.schedule import Stage, Step


@dataclass(frozen=True)
class Fresh:
    """A barrier: after it all threads see what each has stored, and loads are repeated."""


@dataclass(frozen=True)
class Load:
    """The load of a quantity that was computed and stored before."""

    name: str


@dataclass(frozen=True)
class Store:
    """The store of a quantity that is read later."""

    name: str


Between = Fresh | Row | Held | Load | Store


@dataclass(frozen=True)
class Lean:
    """Loads, stores and barriers between two steps that only cuts of at least this leanness
    have."""

    steps: tuple[Between, ...]
    degree: int = 2

    @property
    def condition(self) -> str:
        """The condition, as source, under which the kernel does them."""
        return "LEAN" if self.degree == 1 else "LEAN > 1"


Part = tuple[Row | Quantity | Lean, ...]
"""The steps of a stage."""


def split_steps(lay: Layout, stages: Iterable[Stage], cheap: set[str]) -> list[Part]:
    """Return the steps of each stage, with the loads and stores of lean cuts between them;
    ``cheap`` are the quantities that take no product."""
    every: tuple[Row | Held, ...] = (*lay.rows, *lay.given, *lay.states)
    loads = {load.name: load for load in every}
    parts = _Parts(lay, cheap, loads)
    found = [[*parts.steps(stage)] for stage in stages]
    return [tuple(_joined(_stored(steps, parts.read))) for steps in found]


def plain(stage: Stage) -> Part:
    """Return the steps of a stage in which a lean cut reloads memories only."""
    return tuple(Lean((step,), 1) if isinstance(step, Held) else step for step in stage.steps)


@dataclass(frozen=True)
class Scratches:
    """The scratch memory in which a lean cut stores quantities."""

    lay: Layout
    parts: Iterable[Part]

    @cached_property
    def names(self) -> dict[tuple[str, ...], list[str]]:
        """The rows along each axis, and the matrices, in order."""
        found: dict[tuple[str, ...], list[str]] = {}
        between = (s for part in self.parts for x in part if isinstance(x, Lean) for s in x.steps)
        for step in between:
            if isinstance(step, Store):
                found.setdefault(self._sizes(step.name), []).append(step.name)
        return found

    @property
    def counts(self) -> Stored:
        """How many rows along each axis, and how many matrices, are stored."""
        return tuple((sizes, len(names)) for sizes, names in self.names.items())

    @property
    def parameters(self) -> list[str]:
        """The pointers to what is stored."""
        return [_pointer(sizes) for sizes in self.names]

    def load(self, name: str) -> str:
        """Write the line that loads a stored quantity."""
        return f"{name} = tiles.load_{self._shape(name)}({self._place(name)}, REAL)"

    def store(self, name: str) -> str:
        """Write the line that stores a quantity."""
        return f"tiles.store_{self._shape(name)}({self._place(name)}, {name})"

    def _sizes(self, name: str) -> tuple[str, ...]:
        """Return the axes of a matrix, or the last of rows."""
        sizes = self.lay.sizes(name)
        return sizes[-1:] if sizes[0] in TALL else sizes

    def _shape(self, name: str) -> str:
        if len(self._sizes(name)) == 2:
            return "matrix"
        return "rows" if len(self.lay.sizes(name)) == 2 else "vector"

    def _place(self, name: str) -> str:
        """Write where a stored quantity lies: the pointer, the number, and the places."""
        own, sizes = self._sizes(name), self.lay.sizes(name)
        names = self.names[own]
        number = "memory" if self.lay.split in own else "own"
        number = f"{len(names)} * {number} + {names.index(name)}"
        if len(own) == 1:
            number = f"({number}) * {SOURCES if self.lay.sourced else ROWS}"
        stride = ", 1" if len(own) < len(sizes) else ""
        places = ", ".join(f"{at(size)}, {size}" for size in sizes)
        return f"{_pointer(own)}, {number}{stride}, {places}"


def _stands(lay: Layout, name: str) -> bool:
    """Return whether a quantity of two axes can be stored: it is rows, or has the layout of a
    memory."""
    return lay.sizes(name)[0] in TALL or turned(lay.plan.axes(name))


def _pointer(sizes: tuple[str, ...]) -> str:
    return "_".join(("scratch", *sizes))


@dataclass
class _Parts:
    """Where a lean cut loads what it reads."""

    lay: Layout
    cheap: set[str]
    loads: dict[str, Row | Held]
    read: set[str] = field(default_factory=set)
    """What was computed in an earlier part and is loaded."""
    made: set[str] = field(default_factory=set)
    """What was computed that may be stored."""
    here: set[str] = field(default_factory=set)
    """What was loaded in this part, or computed in it or in the one before."""
    own: set[str] = field(default_factory=set)
    """What was computed in this part."""
    fresh: bool = False
    """Whether what it loads is loaded anew."""

    def steps(self, stage: Stage) -> Iterator[Step | Fresh | Load]:
        """Yield the steps of a stage, with loads."""
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

    def _load(self, name: str) -> Iterator[Step | Fresh | Load]:
        """Yield the load of something that this part has not."""
        if name in self.here or name not in {*self.loads, *self.made}:
            return
        if not self.fresh:
            yield Fresh()
        self.fresh = True
        self.here.add(name)
        if name in self.made:
            self.read.add(name)
            yield Load(name)
        else:
            yield self.loads[name]

    def _numbers(self, stage: Stage) -> list[int]:
        """Return the part of each step; loads, and what is cheap, are in that of a first reader."""
        counts, count = [], 0
        for step in stage.steps:
            count += isinstance(step, Quantity) and heavy(step)
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
        """Return whether a quantity is stored for later reads: not if it is a number, nor if it is
        cheap."""
        sizes = self.lay.sizes(name)
        if name in self.cheap or not set(sizes) <= {*TALL, *self.lay.channels}:
            return False
        return len(sizes) == 1 or (len(sizes) == 2 and _stands(self.lay, name))


def _stored(steps: list[Step | Fresh | Load], read: set[str]) -> Iterator[Row | Quantity | Lean]:
    """Yield the steps, with stores of what is read later."""
    first = {step.name for step in steps if isinstance(step, Row | Held)}
    for step in steps:
        if isinstance(step, Row | Held) and step.name in first:
            first.discard(step.name)
            yield step if isinstance(step, Row) else Lean((step,), 1)
        elif isinstance(step, Quantity):
            yield step
            if step.name in read:
                yield Lean((Store(step.name),))
        else:
            yield Lean((step,))


def _joined(steps: Iterable[Row | Quantity | Lean]) -> Iterator[Row | Quantity | Lean]:
    """Yield the steps, those of lean cuts that follow each other as one."""
    for degree, group in groupby(steps, lambda step: step.degree if isinstance(step, Lean) else 0):
        if not degree:
            yield from group
        else:
            found = (s for step in group if isinstance(step, Lean) for s in step.steps)
            yield Lean(tuple(found), degree)
