"""The statements of one block of pairs inside a pass."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mnemic.codegen.plan import Call, Product, Quantity
from mnemic.codegen.streamed.lines import (
    beside,
    cited,
    exact,
    line,
    load_block,
    same,
    store_block,
    value,
)
from mnemic.codegen.streamed.order import Step, ordered
from mnemic.codegen.streamed.pair_passes import beside_pairs, sums_weights
from mnemic.codegen.tiled.layout import Held
from mnemic.codegen.tiled.swept.along_axis import tops

if TYPE_CHECKING:
    from mnemic.codegen.streamed.body import Body


@dataclass
class Block:
    """One block of pairs in a pass."""

    body: "Body"
    streamed: list[Quantity]
    sums: list[Quantity]
    running: set[str]
    most: int = 0
    """Tiles of the block that live at once."""
    lasting: frozenset[str] = frozenset()
    """Quantities that pairs put in place of others are made of: not rounded to 16 bits."""

    @property
    def pad(self) -> str:
        return self.body.pad + "    "

    def prepare(self, rewrites: dict[str, str]) -> None:
        """Note which quantities of the block are not rounded to 16 bits."""
        if self.body.lasting:
            behind = self.body.passes.needed(tuple(rewrites.values()))
            self.lasting = frozenset(q.name for q in behind)

    def lines(self, rewrites: dict[str, str]) -> Iterator[str]:
        """Yield the block's statements in order; ``rewrites`` take the place of states' entries."""
        self.prepare(rewrites)
        steps = self.steps()
        ends = frozenset(rewrites.values())
        found, self.most = ordered(steps, ends)
        for step in found:
            yield from step.lines
        if rewrites:
            yield f"{self.pad}tl.debug_barrier()"
        for state, name in rewrites.items():
            held = self.body.found.held(state)
            assert held is not None
            yield f"{self.pad}{store_block(held, self.body.found.say(name))}"

    def steps(self) -> list[Step]:
        """Return the block's loads, statements and sums as steps that are not yet in order."""
        steps, held_as = [], {q.name: q.reads()[0] for q in self.streamed if self._as_held(q)}
        others = [q for q in (*self.streamed, *self.sums) if q.name not in held_as]
        for name in dict.fromkeys(n for q in others for n in self.reads(q)):
            held = self.body.found.held(held_as.get(name, name))
            if held is not None:
                steps.append(self.taken(name, held))
        for quantity in others[: len(others) - len(self.sums)]:
            made = line(self.body.found, quantity, self.body.numbers, len(self.pad))
            if quantity.name in self.lasting and isinstance(quantity.op, Product):
                made = exact(made)
            made = self.body.exact(quantity, made)
            large = len(quantity.axes) > 1
            steps.append(Step(quantity.name, self.reads(quantity), tuple(made), large))
        for quantity in self.sums:
            lines = self._higher if tops(quantity) else self._added
            steps.append(Step(quantity.name, self.reads(quantity), tuple(lines(quantity)), False))
        return steps

    def taken(self, name: str, held: Held) -> Step:
        """Return the step that loads the block's entries of a state."""
        loaded = load_block(self.body.found, held, self.body.pairs)
        text = f"{self.pad}{self.body.found.say(name)} = {loaded}"
        return Step(name, (), (text,), bool(held.sizes))

    def _as_held(self, quantity: Quantity) -> bool:
        """Return whether a quantity of the pairs before the chunk is what memory holds."""
        return same(quantity) and self.body.found.held(quantity.reads()[0]) is not None

    def reads(self, quantity: Quantity) -> tuple[str, ...]:
        """Return what of the block must be there before a quantity."""
        op, passes = quantity.op, self.body.passes
        own = [n for n in passes.reads(quantity) if self.body.found.streams(n) or n in self.running]
        top = passes.top_of(quantity) if passes.sums(quantity) else None
        if isinstance(op, Call) and tops(quantity):
            own = [n for n in own if n not in beside_pairs(op)]
        return (*own, str(top)) if top in self.running else tuple(own)

    def _higher(self, quantity: Quantity) -> Iterator[str]:
        """Yield the new largest logit; ``_scale`` is its factor for what was summed before."""
        op, say = quantity.op, self.body.found.say(quantity.name)
        assert isinstance(op, Call)
        past, left = op.arguments[0], op.arguments[1 + len(beside_pairs(op)) :]
        logits = self.body.passes.inside[past]
        text = self.body.found.say(past)
        if left:
            text = f"tiles.weighed({text}, {beside(self.body.found, left[0], logits)})"
        follow = any(self.body.passes.top_of(q) == quantity.name for q in self.sums)
        if follow:
            yield f"{self.pad}{say}_before = {say}"
        yield f"{self.pad}{say} = tiles.higher({say}, {text}, in_N)"
        if follow:
            yield f"{self.pad}{say}_scale = tl.exp({say}_before - {say})"

    def _added(self, quantity: Quantity) -> Iterator[str]:
        passes, say = self.body.passes, self.body.found.say(quantity.name)
        top = passes.top_of(quantity)
        if top in self.running:
            wide = "[:, None]" if len(quantity.axes) > 1 else ""
            yield f"{self.pad}{say} *= {self.body.found.say(str(top))}_scale{wide}"
        comment = cited(self.body.numbers, quantity.equation)
        tail = f"  # {comment}" if comment else ""
        yield from self.body.exact(quantity, [f"{self.pad}{say} += {self._part(quantity)}{tail}"])
        self.body.summed.add(quantity.name)

    def _part(self, quantity: Quantity) -> str:
        """Write a block's part of a sum."""
        op = quantity.op
        if isinstance(op, Call) and sums_weights(op):
            weights, left = op.arguments[0], op.arguments[1 + len(beside_pairs(op)) :]
            text = self.body.found.say(weights)
            if left:
                shaped = self.body.passes.inside[weights]
                text = f"{text} * {beside(self.body.found, left[0], shaped)}"
            return f"tl.sum({text}, {len(quantity.axes)})"
        return value(self.body.found, quantity)
