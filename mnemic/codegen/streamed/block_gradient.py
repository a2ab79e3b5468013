"""The kernel of the gradient of kept pairs: one program for each block, looping over chunks of
rows.

The contributions of all later chunks to the block's gradient are summed on chip, and stored once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mnemic.codegen.streamed.block import Block
from mnemic.codegen.streamed.body import Body
from mnemic.codegen.streamed.lines import load_block, load_handed, store_block
from mnemic.codegen.streamed.order import Step, ordered
from mnemic.codegen.streamed.pair_passes import Passes
from mnemic.codegen.streamed.shared_out import Added
from mnemic.codegen.streamed.streamed_kernel import TILE, Shape, Written, chunk, head
from mnemic.codegen.tiled.layout import Held

THERE = "room"
"""How many pairs there are: a block's are loaded and stored whoever reads them."""


def block_backward(shared: Added, numbers: dict[str, str], shape: Shape) -> Written:
    """Write the kernel that adds up, for a block of pairs, the gradients from all chunks after it;
    or those from a part of the chunks, for the pairs before that part."""
    found = shared.pairs
    carried = {held.name: load_handed(held) for held in shared.handed}
    body = Body(found, Passes(found), numbers, "", shape.indent, carried=carried)
    streamed = [q for q in body.passes.needed(tuple(shared.added.values()))
                if found.streams(q.name)]  # fmt: skip
    there = "since" if shape.part else THERE
    turn = Turn(body, streamed, [], set(), added=shared.added, there=there)
    sums = [held for held in found.kept if held.name in shared.added]
    own = [*turn.lines({})]
    whole = head(found, shape, [f"handed_{held.name}" for held in shared.handed], room=None)
    whole += ["    j = tl.program_id(1)", "    at_N = j * BN + n"]
    whole += turn.before.values()
    whole += [f"    {found.say(h.name)} = {load_block(found, h, there)}" for h in sums]
    whole += chunk(found, _behind(shape), shape)
    whole += [f"{body.pad}{TILE}"] * bool(shared.handed)
    whole += [f"{body.pad}in_N = at_N < {'since' if shape.part else 'behind'}", *own]
    whole += [f"    {store_block(h, found.say(h.name), there)}" for h in sums]
    reads = {n for q in streamed for n in body.passes.reads(q) if not found.streams(n)}
    rows = sum(len(found.plan.axes(n)) > 1 for n in reads)
    stay = turn.large + sum(bool(held.sizes) for held in sums)
    return Written("\n".join(whole) + "\n", (rows, stay + turn.most))


def _behind(shape: Shape) -> str:
    """Write the loop over the chunks that read a block: those behind it, in a window's reach."""
    if shape.part:
        return "    for c in range(part_from, part_to):"
    first, last = "tiles.first_behind(j * BN, before, first, ROWS)", "chunks"
    if shape.span:
        reach = f"j * BN + BN + {shape.span - 2}"
        last = f"tl.minimum(chunks, tiles.first_behind({reach}, before, first, ROWS))"
    return f"    for c in range({first}, {last}):"


@dataclass
class Turn(Block):
    """A chunk of rows, and the block of pairs that stays through all of them."""

    added: dict[str, str] = field(kw_only=True)
    """What is added to each gradient of pairs."""
    before: dict[str, str] = field(default_factory=dict)
    """Entries of states, loaded before the first chunk."""
    large: int = 0
    """How many of the entries in ``before`` are tiles."""
    there: str = THERE

    @property
    def pad(self) -> str:
        return self.body.pad

    def lines(self, rewrites: dict[str, str]) -> Iterator[str]:
        """Yield the statements in order, rows where they are first read."""
        found, self.most = ordered([*self.steps(), *self._sums()], frozenset())
        reads = {q.name: self.body.passes.reads(q) for q in self.streamed}
        for step in found:
            for read in reads.get(step.name, ()):
                if not self.body.found.streams(read):
                    yield from self.body.until(read)
            yield from step.lines

    def taken(self, name: str, held: Held) -> Step:
        say = self.body.found.say(name)
        if name not in self.before:
            self.large += bool(held.sizes)
        self.before[name] = f"    {say} = {load_block(self.body.found, held, self.there)}"
        return Step(name, (), (), False)

    def _sums(self) -> Iterator[Step]:
        """Yield the steps that add to gradients of pairs, where these are before the chunk."""
        body = self.body
        for state, name in self.added.items():
            quantity = body.passes.inside[name]
            there = "in_N[:, None]" if len(quantity.axes) > 1 else "in_N"
            text = f"{body.found.say(state)} += tl.where({there}, {body.found.say(name)}, 0.0)"
            yield Step(f"{state} sum", (name,), (f"{self.pad}{text}",), False)
