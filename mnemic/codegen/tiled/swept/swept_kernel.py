"""A form's kernel that goes along axes of its memories, and the ends of its intervals."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mnemic.codegen import plan as plans
from mnemic.codegen.emit import OUTPUT
from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled import kernel
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.layout import Held, Layout, Stored
from mnemic.codegen.tiled.swept.block_lines import WAIT, Moves, Printer
from mnemic.codegen.tiled.swept.sections import Section
from mnemic.codegen.tiled.swept.sweeps import Sweeps


@dataclass(frozen=True)
class Closing:
    """The update at the end of an interval of so many tokens, computed in sweeps of its own: by
    memory the new value, or the one that a shorter interval's end has left."""

    every: int
    sweeps: Sweeps
    moves: dict[str, str]
    standing: dict[str, str]
    """Where values stand that the chunk has put in place by then."""

    def names(self, state: str) -> set[str]:
        """Return the values that a memory's place holds."""
        return {name for name, place in self.standing.items() if place == state}


@dataclass(frozen=True)
class Form:
    """The sweeps of a form, and those of its intervals' ends that have any of their own."""

    sweeps: Sweeps
    closings: tuple[Closing, ...]

    @property
    def stored(self) -> Stored:
        """How many rows are stored along each axis."""
        return self.sweeps.stored()

    @property
    def all(self) -> tuple[Sweeps, ...]:
        """The sweeps of a chunk, and of the ends of intervals."""
        return (self.sweeps, *(closing.sweeps for closing in self.closings))


@dataclass(frozen=True)
class Forward(Printer):
    """The lines of a form's kernel."""

    closings: tuple[Closing, ...]

    def kernel(self, name: str, doc: str) -> str:
        """Write the kernel of a form: arguments by row, memories in and out."""
        lay = self.lay
        lines = [kernel.JIT, f"def {name}("]
        sections = self.sweeps.sections()  # which know what is stored
        lines += [f"    {part}," for part in self.parameters(kernel.parameters(lay))]
        lines += ["):", f'    """{doc}"""', *kernel.opening(lay, self.sweeps.along)]
        lines += kernel.PIECE.splitlines()
        lines.append("    from_piece = memory if READ else (slot + piece) * heads + memory % heads")
        for state in self.resident():
            loaded = kernel.load_state(state, f"start_{state.name}", "from_piece")
            lines.append(f"    {state.name} = {loaded}")
        lines += [*self.copied("end", "memory", "start", "from_piece", 4), f"    {WAIT}"]
        lines += (kernel.CHUNKS if lay.chunked else kernel.TOKENS).splitlines()
        lines += [
            *kernel.windowed(lay),
            *self._store_memories(),
            *self.body(sections),
            f"        {WAIT}",
        ]
        lines += ["    if READ:"] if self.resident() else []
        for state in self.resident():
            text = kernel.store_state(state, f"end_{state.name}", "memory", state.name)
            lines.append(f"        {text}")
        return "\n".join(lines) + "\n"

    def _store_memories(self) -> Iterator[str]:
        """Keep the memories at the start of every piece; of every chunk, if one is made anew."""
        for told, place in (
            ("KEEP and READ and chunk % PIECE == 0",
             "(slot + chunk // PIECE) * heads + memory % heads"),
            ("not READ", "memory * PIECE + chunk - since"),
        ):  # fmt: skip
            yield f"        if {told}:"
            yield f"            place = {place}"
            for state in self.resident():
                text = kernel.store_state(state, f"kept_{state.name}", "place", state.name)
                yield f"            {text}"
            yield from self.copied("kept", "place", "end", "memory", 12)

    def body(self, sections: list[Section]) -> Iterator[str]:
        """Write the sections of a chunk; memories move on in the last sweep."""
        output = self.lay.plan.output
        anew = any(OUTPUT in moves for moves in self.lay.plan.closed.values())
        for number, section in enumerate(sections):
            yield from self.steps(section)
            if output in section.ends and not anew:
                yield from self.out()
            last = number == len(sections) - 2
            for found in section.loops:
                yield from self.sweep(found, self._moves(found.size) if last else {})
        yield from self._moved()
        for closing in self.closings:
            yield from self._closed(closing)
        if anew:
            yield from self.out()

    def out(self) -> Iterator[str]:
        """Store the output."""
        yield "        if READ:"
        yield f"            {kernel.store_output(self.lay)}"

    def home(self, state: str) -> tuple[str, str]:
        """Return where the next value of a memory goes: the pointer, and the memory's number."""
        return self.pointers[state]

    def _closed(self, closing: Closing) -> Iterator[str]:
        """Write the sweeps at the end of an interval, over memories as the chunk has left them."""
        standing = {name: self.home(state) for name, state in closing.standing.items()}
        pad, space = self.pad + 4, " " * self.pad
        inner = replace(self, sweeps=closing.sweeps, pointers=self.pointers | standing, pad=pad)
        held = {state.name: state for state in self.lay.states}
        yield f"{space}if {self.closes(closing.every)}:"
        yield f"{space}    {WAIT}"
        sections = closing.sweeps.sections()
        for number, section in enumerate(sections):
            yield from inner.steps(section)
            for found in section.loops:
                moves = {
                    s: ({n, *closing.names(s)}, [self._store(held[s], n)])
                    for s, n in closing.moves.items()
                    if s in held and inner.sweeps.axis(s) == found.size
                }
                yield from inner.sweep(found, moves if number == len(sections) - 2 else {})
        yield from (f"{space}    {line}" for line in self._kept_moves(closing.moves))

    def _kept_moves(self, moves: dict[str, str]) -> Iterator[str]:
        """Write an interval's end for memories in registers."""
        ends = {self.lay.plan.output if s == OUTPUT else s: n for s, n in moves.items()}
        own = {s: n for s, n in ends.items() if s != n and not self.sweeps.axis(s)}
        if own:
            yield f"{', '.join(own)} = {', '.join(own.values())}"

    def _copies(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield what ends of intervals put in place that have no sweeps of their own."""
        computing = {closing.every for closing in self.closings}
        for every, moves in sorted(self.lay.plan.closed.items()):
            if every not in computing:
                yield every, moves

    def _moves(self, size: str) -> Moves:
        """Return the next memories along an axis, and what ends of intervals put in their place."""
        plan, found = self.lay.plan, Moves()
        for state in self.held()[size]:
            following = plan.following.get(state.name, state.name)
            own = found.setdefault(state.name, (set(), list(self.stays(state))))
            if following != state.name:
                own[0].add(following)
                own[1].append(self._store(state, following))
            for every, moves in self._copies():
                if state.name in moves:
                    own[0].add(moves[state.name])
                    wait = [f"    {WAIT}"] if own[1] else []  # other threads may have stored
                    own[1].extend([f"if {self.closes(every)}:", *wait])
                    own[1].append(f"    {self._store(state, moves[state.name])}")
        return {name: own for name, own in found.items() if own[1]}

    def stays(self, state: Held) -> Iterator[str]:
        """Yield the lines for a memory that a chunk does not change: none, as it is in place
        already; the kernel of a single token, whose next memories lie elsewhere, copies it."""
        yield from ()

    def _store(self, state: Held, value: str) -> str:
        return kernel.store_state(state, *self.home(state.name), value)

    def closes(self, every: int) -> str:
        """Write the condition that an interval of the document ends."""
        done = "low + live" if self.lay.chunked else "chunk + 1"
        return f"tiles.closes(position, {done}, {every}, STEPS)"

    def _moved(self) -> Iterator[str]:
        """Put in place what stays in registers: next memories, and what ends of intervals move."""
        plan, swept = self.lay.plan, self.sweeps
        moves = {s: n for s, n in plan.following.items() if s != n and not swept.axis(s)}
        if moves:
            yield f"{' ' * self.pad}{', '.join(moves)} = {', '.join(moves.values())}"
        for every, closing in self._copies():
            for line in self._kept_moves(closing):
                yield f"{' ' * self.pad}if {self.closes(every)}:"
                yield f"{' ' * self.pad}    {line}"


def forward(form: Form, numbers: dict[str, str], name: str, doc: str) -> str:
    """Write the kernel of a form that goes along some axes."""
    lay = form.sweeps.lay
    places = {state.name: (f"end_{state.name}", "memory") for state in lay.states}
    return Forward(form.sweeps, numbers, places, 8, form.closings).kernel(name, doc)


def of_form(lay: Layout, along: tuple[str, ...], *, anew: bool = True) -> Form:
    """Return a form's sweeps along some axes; each section of a chunk makes ``anew`` what is cheap.

    What ends of intervals compute goes through the memories again, as the chunk has left them.
    Raises ``NoTiles`` where they cannot be gone along.
    """
    plan, phases = lay.plan, lay.plan.phases()
    inside = {q.name: q for q in (*phases.before, *phases.scan)}
    made = {q.name for c in phases.closings for q in c.statements}  # which shorter ones have made
    computing = {
        c.every for c in phases.closings if c.statements or made & set(c.moves.values())
    }  # fmt: skip
    last = [n for s, n in plan.following.items() if s != n]
    last += [n for every, moves in plan.closed.items() if every not in computing
             for n in moves.values()]  # fmt: skip
    last += [read for c in phases.closings for q in c.statements for read in q.reads()
             if read in inside and not set(lay.sizes(read)) & set(along)]  # fmt: skip
    found = Sweeps(lay, along, inside, (plan.output,), tuple(dict.fromkeys(last)), anew=anew)
    if found.axis(plan.output):
        raise NoTiles("an output along the axis")
    standing = {n: s for s, n in plan.following.items() if s != n}
    closings = []
    for closing in phases.closings:
        if closing.every in computing:
            closings.append(_closing(found, closing, dict(standing)))
        standing |= {n: s for s, n in closing.moves.items() if s != OUTPUT}
    return Form(found, tuple(closings))


def _closing(form: Sweeps, closing: plans.Closing, standing: dict[str, str]) -> Closing:
    inside = _anew(form, closing, standing) | {q.name: q for q in closing.statements}
    held = {state.name: state for state in form.lay.states}
    also = tuple(replace(held[state], name=name) for name, state in standing.items())
    last = tuple(dict.fromkeys(closing.moves.values()))
    sweeps = Sweeps(form.lay, form.along, inside, (), last, also=also, keeps=False)
    return Closing(closing.every, sweeps, closing.moves, standing)


def _anew(
    form: Sweeps, closing: plans.Closing, standing: dict[str, str]
) -> dict[str, Quantity]:  # fmt: skip
    """Return what an interval's end must recompute of the quantities along the axis that it reads:
    those of the chunk that follow from the memories it has left.

    Raises ``NoTiles`` where one does not.
    """
    known = {*(row.name for row in form.lay.rows), *standing}
    known |= {state.name for state in form.lay.states} - set(standing.values())
    known |= {q.name for q in closing.statements}
    found: dict[str, Quantity] = {}

    def follow(name: str) -> None:
        if not form.axis(name) or name in known or name in found:
            return
        if name not in form.inside:
            raise NoTiles("an interval's end reads what is no memory")
        for read in form.inside[name].reads():
            follow(read)
        found[name] = form.inside[name]

    for quantity in closing.statements:
        for read in quantity.reads():
            follow(read)
    return found
