"""The statements of one block of pairs, inside a pass that also loops along another axis."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from mnemic.codegen.plan import Quantity
from mnemic.codegen.streamed.block import Block
from mnemic.codegen.streamed.lines import store_block, value, zeros
from mnemic.codegen.streamed.order import Step, ordered
from mnemic.codegen.streamed.stages import Stages
from mnemic.codegen.tiled.swept import loop


@dataclass
class SplitBlock(Block):
    """One block of pairs: what lies along the axis goes by it in as many loops as sums depend on
    sums, entries of states being stored in the last."""

    stages: Stages = field(kw_only=True)
    load: Callable[[str], str] = field(kw_only=True)
    """How rows along the axis are loaded that a sweep kept."""
    levels: dict[str, int] = field(default_factory=dict)

    def lines(self, rewrites: dict[str, str]) -> Iterator[str]:
        self.prepare(rewrites)
        inside = {s: n for s, n in rewrites.items() if self.stages.lies(n)}
        steps = {s.name: s for s in (*self.steps(), *self._rows())}
        sums = [q for q in self.streamed if self.stages.crosses(q)]
        turns = [self._level(q.name) - 1 for q in sums] + [self._level(n) for n in inside.values()]
        last = max(turns, default=-1)
        done = {q.name for q in sums}
        for level in range(1 + max(last, *(self._level(n) for n in steps))):
            plain = [
                s for n, s in steps.items()
                if n not in done and not self.stages.lies(n) and self._level(n) <= level
            ]  # fmt: skip
            ends = {n for n in rewrites.values() if n not in inside.values()}
            ends |= {q.name for q in self.sums}
            for step in self._ordered(plain, frozenset(ends)):
                done.add(step.name)
                yield from step.lines
            mine = [q for q in sums if self._level(q.name) == level + 1]
            if level <= last:
                yield from self._along(steps, mine, inside if level == last else {})
        whole = {s: n for s, n in rewrites.items() if s not in inside}
        yield from self._put(whole, self.pad)

    def reads(self, quantity: Quantity) -> tuple[str, ...]:
        aside = (n for n in self.body.passes.reads(quantity) if self.body.aside(n))
        return (*super().reads(quantity), *(n for n in aside if not self.body.found.streams(n)))

    def _level(self, name: str) -> int:
        """Return how many loops along the axis must be over before entries are known."""
        quantity = next((q for q in (*self.streamed, *self.sums) if q.name == name), None)
        if quantity is None:
            return 0
        if name not in self.levels:
            reads = [self._level(r) for r in self._entries(quantity)]
            self.levels[name] = max(reads, default=0) + self.stages.crosses(quantity)
        return self.levels[name]

    def _entries(self, quantity: Quantity) -> list[str]:
        return [n for n in self.body.passes.reads(quantity) if self.body.found.streams(n)]

    def _rows(self) -> Iterator[Step]:
        """Yield the loads of rows along the axis."""
        reads = dict.fromkeys(r for q in self.streamed for r in self.body.passes.reads(q))
        for name in reads:
            if self.stages.lies(name) and not self.body.found.streams(name):
                text = f"{self.pad}{self.body.found.say(name)} = {self.load(name)}"
                yield Step(name, (), (text,), True)

    def _along(
        self, steps: dict[str, Step], sums: list[Quantity], rewrites: dict[str, str]
    ) -> Iterator[str]:  # fmt: skip
        """Yield a loop along the axis: some sums over it, squares of rows, and then entries of
        states, whose products stand last (``tiled.latest`` says why)."""
        for quantity in sums:
            nothing = zeros(self.body.found, quantity)
            yield f"{self.pad}{self.body.found.say(quantity.name)} = {nothing}"
        yield from loop(self.stages.along, len(self.pad))
        made: set[str] = set()
        for ends in (tuple(q.name for q in sums), tuple(rewrites.values())):
            own = {n: steps[n] for n in self._behind(steps, ends) if n not in made}
            own |= {q.name: self._added_along(q) for q in sums if q.name in ends}
            for step in self._ordered(list(own.values()), frozenset(ends)):
                made.add(step.name)
                yield from (f"    {text}" for text in step.lines)
        yield from self._put(rewrites, f"{self.pad}    ")

    def _behind(self, steps: dict[str, Step], ends: tuple[str, ...]) -> list[str]:
        """Return what lies along the axis and is needed for some ends."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            if name not in steps or name in found:
                return
            for read in self._all_reads(name):
                if self.stages.lies(read):
                    visit(read)
            found[name] = None

        for end in ends:
            visit(end)
        return [name for name in found if self.stages.lies(name)]

    def _all_reads(self, name: str) -> tuple[str, ...]:
        quantity = next((q for q in self.streamed if q.name == name), None)
        return () if quantity is None else self.body.passes.reads(quantity)

    def _added_along(self, quantity: Quantity) -> Step:
        """Return the step that adds a block's part to a sum over the axis."""
        text = f"{self.body.found.say(quantity.name)} += {value(self.body.found, quantity)}"
        lines = self.body.exact(quantity, [f"{self.pad}{text}"])
        return Step(quantity.name, self._all_reads(quantity.name), tuple(lines), True)

    def _ordered(self, steps: list[Step], ends: frozenset[str]) -> list[Step]:
        """Order some statements, loads where they are read; what others made is there."""
        names = {s.name for s in steps}
        own = [replace(s, reads=tuple(n for n in s.reads if n in names)) for s in steps]
        asked = [Step(f"{END}{n}", (n,), (), False) for n in sorted(ends & names)]
        found, most = ordered([*own, *asked], ends)
        self.most = max(self.most, most)
        return [step for step in found if not step.name.startswith(END)]

    def _put(self, rewrites: dict[str, str], pad: str) -> Iterator[str]:
        """Yield the stores of entries of states, behind a barrier."""
        yield from [f"{pad}tl.debug_barrier()"] * bool(rewrites)
        for state, name in rewrites.items():
            held = self.body.found.held(state)
            assert held is not None
            yield f"{pad}{store_block(held, self.body.found.say(name))}"


END = "·"
"""Begins the name of a step that asks for another and does nothing."""
