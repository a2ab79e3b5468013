"""An order of statements in which few tiles are alive at once.

The tiles alive at a statement are those that it makes, and earlier ones (made or loaded) that it or
a later statement reads. The search is a beam: orders grow by one statement at a time, and the
``WIDTH`` whose fullest moment holds the fewest entries are kept. Arguments are loaded where they
are first read.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled.divided import costs
from mnemic.codegen.tiled.layout import Layout
from mnemic.codegen.tiled.schedule import Step

WIDTH = 24
"""How many begun orders go on."""


def few_alive(lay: Layout, steps: Iterable[Step], kept: Collection[str]) -> tuple[Step, ...]:
    """Order loads and statements; what is ``kept`` stays alive throughout."""
    search = _Search(lay, tuple(steps), frozenset(kept))
    return tuple(search.with_loads(search.best()))


@dataclass(frozen=True)
class _Begun:
    """The beginning of an order: its statements, the entries at its fullest moment, and the tiles
    alive after it."""

    order: tuple[str, ...] = ()
    most: int = 0
    alive: frozenset[str] = frozenset()
    entries: int = 0


@dataclass(frozen=True)
class _Search:
    lay: Layout
    given: tuple[Step, ...]
    kept: frozenset[str]
    sizes: dict[str, int] = field(default_factory=dict, init=False)

    @cached_property
    def statements(self) -> dict[str, Quantity]:
        return {step.name: step for step in self.given if isinstance(step, Quantity)}

    @cached_property
    def loads(self) -> dict[str, Step]:
        return {step.name: step for step in self.given if not isinstance(step, Quantity)}

    @cached_property
    def readers(self) -> dict[str, frozenset[str]]:
        """The statements that read each quantity."""
        found: dict[str, set[str]] = {}
        for quantity in self.statements.values():
            for name in quantity.reads():
                found.setdefault(name, set()).add(quantity.name)
        return {name: frozenset(readers) for name, readers in found.items()}

    @cached_property
    def behind(self) -> dict[str, frozenset[str]]:
        """What must come before each statement."""
        return {name: frozenset(self.statements.keys() & {*quantity.reads()} - {name})
                for name, quantity in self.statements.items()}  # fmt: skip

    @cached_property
    def own(self) -> dict[str, frozenset[str]]:
        """What each statement makes and reads: nothing else that is alive ends with it."""
        return {name: frozenset({name, *quantity.reads()}) - self.kept
                for name, quantity in self.statements.items()}  # fmt: skip

    def best(self) -> tuple[str, ...]:
        """Search for an order of the statements whose fullest moment holds few entries."""
        known = frozenset(self.readers.keys() - self.statements.keys() - self.loads.keys())
        alive = known - self.kept
        beam = [_Begun((), 0, alive, self._entries(alive))]
        for _ in self.statements:
            found: dict[frozenset[str], _Begun] = {}
            for begun in beam:
                for longer in self._longer(begun):
                    done = frozenset(longer.order)
                    if done not in found or _fullness(longer) < _fullness(found[done]):
                        found[done] = longer
            beam = sorted(found.values(), key=_fullness)[:WIDTH]
        return beam[0].order

    def _longer(self, begun: _Begun) -> Iterator[_Begun]:
        """Yield a begun order with one statement more, for each that may come next."""
        done = frozenset(begun.order)
        for name, before in self.behind.items():
            if name in done or not before <= done:
                continue
            own, finished = self.own[name], done | {name}
            during = begun.entries + self._entries(own - begun.alive)
            gone = frozenset(n for n in own if self.readers.get(n, frozenset()) <= finished)
            yield _Begun(
                (*begun.order, name), max(begun.most, during), (begun.alive | own) - gone,
                during - self._entries(gone),
            )  # fmt: skip

    def _entries(self, names: Iterable[str]) -> int:
        for name in names:
            if name not in self.sizes:
                self.sizes[name] = costs.entries(self.lay, name)
        return sum(self.sizes[name] for name in names)

    def with_loads(self, order: tuple[str, ...]) -> Iterator[Step]:
        """Yield the statements, each behind the loads that it reads first; last the loads left."""
        loads = dict(self.loads)
        for name in order:
            for read in self.statements[name].reads():
                if read in loads:
                    yield loads.pop(read)
            yield self.statements[name]
        yield from loads.values()


def _fullness(begun: _Begun) -> tuple[int, int]:
    return begun.most, begun.entries
