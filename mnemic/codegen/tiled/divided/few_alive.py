"""The order of statements in which few tiles are alive at once.

Of the statements that can come next the one comes that leaves the fewest entries alive: what it
makes, and what is loaded for it, less what nothing reads behind it. Arguments are loaded where they
are read first.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled.divided import costs
from mnemic.codegen.tiled.layout import Layout
from mnemic.codegen.tiled.schedule import Step


def few_alive(lay: Layout, steps: Iterable[Step], kept: Collection[str]) -> tuple[Step, ...]:
    """Order loads and statements anew, unless fewer entries are alive in the order as it is; what
    is ``kept`` stays alive throughout."""
    given = tuple(steps)
    found = tuple(_Order(lay, given, kept).steps())
    return min((found, given), key=lambda order: _most(lay, order, kept))


@dataclass
class _Order:
    lay: Layout
    given: tuple[Step, ...]
    kept: Collection[str]
    left: Counter[str] = field(init=False)
    """How many statements read each quantity that have not come yet."""
    loads: dict[str, Step] = field(init=False)
    alive: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        statements = [step for step in self.given if isinstance(step, Quantity)]
        self.left = Counter(name for q in statements for name in set(q.reads()))
        self.loads = {step.name: step for step in self.given if not isinstance(step, Quantity)}

    def steps(self) -> Iterator[Step]:
        """The steps in order."""
        ahead = [step for step in self.given if isinstance(step, Quantity)]
        made = {step.name for step in ahead}
        while ahead:
            waiting = {step.name for step in ahead}
            ready = [q for q in ahead if waiting.isdisjoint({*q.reads()} & made - {q.name})]
            step = min(ready, key=self._more)
            ahead.remove(step)
            for name in step.reads():
                if name in self.loads and name not in self.alive:
                    self.alive.add(name)
                    yield self.loads[name]
            yield step
            self.alive |= {step.name} if self.left[step.name] else set()
            for name in set(step.reads()):
                self.left[name] -= 1
                self.alive -= set() if self.left[name] else {name}
        read = {name for step in self.given if isinstance(step, Quantity) for name in step.reads()}
        yield from (step for name, step in self.loads.items() if name not in read)

    def _more(self, step: Quantity) -> int:
        """How many entries more are alive behind a statement."""
        reads = set(step.reads())
        loaded = {name for name in reads & self.loads.keys() if name not in self.alive}
        ending = {name for name in reads - {*self.kept} if self.left[name] == 1}
        begun = {step.name} if self.left[step.name] and step.name not in self.kept else set()
        return _entries(self.lay, begun | loaded) - _entries(self.lay, ending)


def _entries(lay: Layout, names: Iterable[str]) -> int:
    return sum(costs.entries(lay, name) for name in names)


def _most(lay: Layout, order: tuple[Step, ...], kept: Collection[str]) -> int:
    """The most entries that are alive at once, beside what is kept."""
    alive, most = set[str](), 0
    for step in reversed(order):
        reads = set(step.reads()) if isinstance(step, Quantity) else set[str]()
        most = max(most, _entries(lay, (alive | reads | {step.name}) - {*kept}))
        alive = (alive - {step.name}) | reads
    return most
