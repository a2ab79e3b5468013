"""A layer's token as a kernel that goes along its memories block by block.

For memories that registers do not hold (``tiled.swept``). The prologue's vectors lie along no axis
that is gone along, and stay in registers; memories are read where they stand, and stored once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mnemic.codegen.plan import Given, Quantity
from mnemic.codegen.step.loads import load
from mnemic.codegen.step.step_kernel import (
    BARRIER,
    Drawn,
    opening,
    parameters,
    queries,
    tails,
    windows,
)
from mnemic.codegen.tiled import swept
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.kernel import load_state, store_state
from mnemic.codegen.tiled.layout import Held, Layout, Row, Stored, layout
from mnemic.codegen.tiled.schedule import Order


@dataclass(frozen=True)
class Forward(swept.Forward):
    """The lines of a token's kernel that goes along memories: what begins stands at ``start_…``,
    what ends at ``end_…``, which may be the same place."""

    drawn: Drawn

    def lines(self, doc: str) -> Iterator[str]:
        """Yield the lines of the kernel."""
        drawn, along = self.drawn, self.sweeps.along
        sections = self.sweeps.sections()  # which know what is stored
        scratch = tuple(size for (size,), _ in self.sweeps.stored())
        yield from ("@triton.jit", "def step_swept_kernel(")
        yield from (f"    {part}," for part in parameters(drawn, scratch) if "FINISH" not in part)
        yield from ("):", f'    """{doc}"""', *opening(drawn, along), *queries(drawn))
        for state in self.resident():
            loaded = load_state(state, f"start_{state.name}", "memory")
            yield f"    {state.name} = {loaded}"
        yield from self.body(sections)
        yield f"    {BARRIER}"
        for state in self.resident():
            yield f"    {store_state(state, f'end_{state.name}', 'memory', state.name)}"
        yield from tails(drawn, lambda _: True, 4)
        yield from windows(drawn)

    def line(self, step: swept.Load | Quantity | swept.Store, pad: int) -> Iterator[str]:
        """Yield one load or statement: rows are the prologue's."""
        if isinstance(step, Row):
            found = load(self.lay, step, self.drawn.whole.loads[step.name])
            yield f"{' ' * pad}{step.name} = {found}"
        else:
            yield from super().line(step, pad)

    def out(self) -> Iterator[str]:
        """Yield the lines that norm and gate what was read, and store it."""
        plan, end = self.drawn.lay.plan, self.drawn.lay.plan.output
        inside = {q.name: q for q in plan.ordered() if not isinstance(q.op, Given)}
        order = Order(self.lay, inside, {row.name: row for row in self.lay.rows})
        order.done.add(self.lay.plan.output)
        for step in order.until(end):
            yield from self.line(step, 4)
        (size,) = self.lay.sizes(end)
        number = "batch * heads * GROUPS + query"
        yield f"    tiles.store_vector(rows_out, {number}, at_{size}, {size}, {end})"

    def home(self, state: str) -> tuple[str, str]:
        """Return where the next value of a memory goes."""
        return f"end_{state}", "memory"

    def stays(self, state: Held) -> Iterator[str]:
        """Yield the load and the store of a memory that the token does not change."""
        if self.lay.plan.following.get(state.name, state.name) == state.name:
            yield f"{state.name} = {load_state(state, *self.pointers[state.name])}"
            yield store_state(state, *self.home(state.name), state.name)

    def closes(self, every: int) -> str:
        """Write the test whether an interval of the document ends with the token."""
        return f"tiles.closes(position, 1, {every}, 1)"


@dataclass(frozen=True)
class Stepped:
    """The kernel, the sizes that it goes along, and how many rows it stores along each."""

    text: str
    along: tuple[str, ...]
    scratch: Stored


def stepped(drawn: Drawn, doc: str) -> Stepped | None:
    """Return the kernel of a token whose memories have an axis to go along, or ``None``.

    Where programs share out a memory's values, or several queries read it, there is none, nor where
    the prologue's vectors lie along the axis, or the last sweep does not pass by all memories.
    """
    if drawn.lay.split or drawn.groups > 1:
        return None
    along = swept.axes(drawn.lay, lambda along: _spread(drawn, along))
    if not along:
        return None
    form = swept.of_form(_spread(drawn, along), along, anew=False)
    if any(set(row.sizes) & set(along) for row in form.sweeps.lay.rows):
        return None
    places = {state.name: (f"start_{state.name}", "memory") for state in drawn.lay.states}
    made = Forward(form.sweeps, drawn.numbers, places, 4, form.closings, drawn)
    last = {loop.size for loop in form.sweeps.sections()[-2].loops}
    if any(states and size not in last for size, states in made.held().items()):
        return None
    try:
        text = "\n".join(made.lines(doc)) + "\n"
    except NoTiles:
        return None
    return Stepped(text, along, form.stored)


def _spread(drawn: Drawn, along: tuple[str, ...]) -> Layout:
    """Lay out the plan without functions of memories that are gone along; its output is what is
    read, of which the norm and the gate follow."""
    lay = drawn.lay
    plan = swept.spread(lay, along)
    found = layout(
        plan, frozenset(), chunked=False, output=plan.output, windows=lay.windows, like=lay
    )
    return replace(found, plan=replace(plan, output=drawn.whole.read))
