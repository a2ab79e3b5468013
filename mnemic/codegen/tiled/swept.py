"""Kernels whose memories lie in the device's memory, and are gone through block by block.

For what does not fit into registers: of an axis that is only summed over (``sweeps``) a block at a
time is loaded, used and stored. The memories stand where those at the end belong, and all threads
of a program wait for each other between sweeps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from mnemic.codegen import plan as plans
from mnemic.codegen.adjoint import Adjoint
from mnemic.codegen.emit import OUTPUT, wrapped
from mnemic.codegen.plan import Fused, Given, Quantity
from mnemic.codegen.tiled import backward as gradient
from mnemic.codegen.tiled import kernel
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.layout import ROWS, SOURCES, Held, Layout, Row, turned
from mnemic.codegen.tiled.statements import statement
from mnemic.codegen.tiled.sweeps import (
    End,
    Load,
    Loop,
    Scratch,
    Section,
    Step,
    Store,
    Sum,
    Sweeps,
    subsets,
    tops,
)  # fmt: skip

WAIT = "tl.debug_barrier()"
"""All threads see what each has stored."""

Moves = dict[str, tuple[set[str], list[str]]]
"""By memory: the values that follow it, and the lines that put them in its place."""


@dataclass(frozen=True)
class Printer:
    """What the lines of a swept kernel need: the sweeps, equations' numbers, where memories lie."""

    sweeps: Sweeps
    numbers: dict[str, str]
    pointers: dict[str, tuple[str, str]]
    """Of each memory along an axis: the pointer, and the number of the memory."""

    pad: int
    """Where a chunk's lines begin."""

    @property
    def lay(self) -> Layout:
        """The layout."""
        return self.sweeps.lay

    def held(self, *, given: bool = False) -> dict[str, list[Held]]:
        """The memories along each axis."""
        found: dict[str, list[Held]] = {size: [] for size in self.sweeps.along}
        for state in self.lay.given if given else self.lay.states:
            if axis := self.sweeps.axis(state.name):
                found[axis].append(state)
        return found

    def resident(self) -> list[Held]:
        """The memories that stay in registers."""
        return [state for state in self.lay.states if not self.sweeps.axis(state.name)]

    # -- parts -------------------------------------------------------------------------------

    def copied(self, to: str, place: str, start: str, number: str, pad: int) -> Iterator[str]:
        """Copy the memories along axes from one place to another, by pointers' beginnings."""
        for size, states in self.held().items():
            if states:
                yield from loop(size, pad)
            for state in states:
                value = kernel.load_state(state, f"{start}_{state.name}", number)
                text = kernel.store_state(state, f"{to}_{state.name}", place, value)
                yield f"{' ' * (pad + 4)}{text}"

    def steps(self, section: Section) -> Iterator[str]:
        """What a section computes before its sweep."""
        for step in section.steps:
            yield from self.line(step, self.pad)

    def line(self, step: Load | Quantity, pad: int) -> Iterator[str]:
        """One load or statement."""
        match step:
            case Row():
                yield f"{' ' * pad}{step.name} = {kernel.load_row(self.lay, step)}"
            case Held(name=name):
                yield f"{' ' * pad}{name} = {kernel.load_state(step, *self.pointers[name])}"
            case Scratch(name=name):
                load = "load_rows" if self.lay.chunked else "load_vector"
                yield f"{' ' * pad}{name} = tiles.{load}({self._scratch(step)}, REAL)"
            case Quantity(op=Given()):
                return
            case Quantity():
                source = self._rest(step) or statement(self.lay, step, {}, apart=self.lay.chunked)
                yield from wrapped(step.name, source, self._cited(step), pad)

    def _scratch(self, found: Scratch) -> str:
        """Where rows lie that later sweeps load: pointer, number, and places."""
        names = self.sweeps.places(found.size)
        number = f"{len(names)} * memory + {names.index(found.name)}"
        own = f"at_{found.size}, {found.size}"
        pointer = f"scratch_{found.size}"
        if not self.lay.chunked:
            return f"{pointer}, {number}, {own}"
        size, tall = self.lay.sizes(found.name)[0], SOURCES if self.lay.sourced else ROWS
        rows = "t" if size == ROWS else f"at_{size}"
        return f"{pointer}, ({number}) * {tall}, 1, {rows}, {size}, {own}"

    def parameters(self, known: list[str]) -> list[str]:
        """A kernel's parameters with those for rows that later sweeps load; no cut is lean."""
        known = [name for name in known if not name.startswith("LEAN")]
        own = [f"scratch_{size}" for size in self.sweeps.along if self.sweeps.places(size)]
        place = known.index(kernel.NUMBERS[0])
        return [*known[:place], *own, *known[place:]]

    def _rest(self, quantity: Quantity) -> str:
        """What is left of a sum over blocks when they are through."""
        if not isinstance(quantity.op, Fused) or not self.sweeps.crosses(quantity.name):
            return ""
        sign = "+" if quantity.op.sign > 0 else "-"
        return f"{quantity.op.addend} {sign} {_sum(quantity)}"

    def _cited(self, quantity: Quantity) -> str:
        return gradient.cited(self.numbers, quantity.equation)

    def sweep(self, found: Loop, moving: Moves) -> Iterator[str]:
        """A loop over the blocks of an axis; memories move on as soon as nothing loads them."""
        placed = {state: found.after({state, *needed}) for state, (needed, _) in moving.items()}
        space, inner = " " * self.pad, " " * (self.pad + 4)
        for quantity in found.sums:
            yield f"{space}{_sum(quantity)} = {self._begun(quantity)}"
        yield from loop(found.size, self.pad)
        for number, step in enumerate((None, *found.steps)):
            yield from self._step(step) if step else ()
            for state in (s for s, done in placed.items() if done == number):
                yield from (f"{inner}{line}" for line in (WAIT, *moving[state][1]))
        if any(isinstance(step, Store) for step in found.steps):
            yield f"{space}{WAIT}"

    def _step(self, step: Step) -> Iterator[str]:
        """A step of a block."""
        pad = self.pad + 4
        match step:
            case Sum(quantity=quantity):
                cited = self._cited(quantity)
                yield from wrapped(_sum(quantity), self._part(quantity), cited, pad)
            case End():
                yield from self.stored(step.name)
            case Store(scratch=scratch):
                store = "store_rows" if self.lay.chunked else "store_vector"
                yield f"{' ' * pad}tiles.{store}({self._scratch(scratch)}, {scratch.name})"
            case _:
                yield from self.line(step, pad)

    def _begun(self, quantity: Quantity) -> str:
        """What a sum (or a maximum) over blocks starts with."""
        tile = self._tile(quantity)
        if tops(self.lay, quantity):
            return f"tl.full({tile}, float('-inf'), REAL)"
        return f"tl.zeros({tile}, REAL)"

    def _part(self, quantity: Quantity) -> str:
        """A sum with one more block."""
        whole = quantity
        if isinstance(quantity.op, Fused):
            whole = Quantity(quantity.name, quantity.axes, quantity.op.product, quantity.equation)
        block, known = statement(self.lay, whole, {}, apart=self.lay.chunked), _sum(quantity)
        return f"tl.maximum({known}, {block})" if tops(self.lay, quantity) else f"{known} + {block}"

    def stored(self, name: str) -> Iterator[str]:
        """Store what a loop has made of rows: nothing but a gradient's kernel has such."""
        raise NotImplementedError(name)

    def _tile(self, quantity: Quantity) -> str:
        """The shape of a tile."""
        own = tuple(zip(quantity.axes, self.lay.sizes(quantity.name), strict=True))
        sizes = [size or "C" for _, size in (own[::-1] if turned(quantity.axes) else own)]
        tall = {"C", "SOURCES"}
        names = [size if size in tall else f"B{size}" for size in sizes]
        return f"({', '.join(names)},)" if names else "()"


def loop(size: str, pad: int) -> list[str]:
    """The head of a loop over the blocks of an axis."""
    space = " " * pad
    return [
        f"{space}for low_{size} in tl.range(0, {size}, B{size}, disable_licm=True):",
        f"{space}    at_{size} = low_{size} + tl.arange(0, B{size})",
        f"{space}    in_{size} = at_{size} < {size}",
    ]


def _sum(quantity: Quantity) -> str:
    """The name of a sum over blocks: its own, unless something is added to it."""
    return f"{quantity.name}_sum" if isinstance(quantity.op, Fused) else quantity.name


# -- the form --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Closing:
    """What the end of an interval of so many tokens puts in place, by sweeps of its own."""

    every: int
    sweeps: Sweeps
    moves: dict[str, str]
    standing: dict[str, str]
    """Where values stand that the chunk has put in place by then."""

    def names(self, state: str) -> set[str]:
        """The values that a memory's place holds."""
        return {name for name, place in self.standing.items() if place == state}


@dataclass(frozen=True)
class Form:
    """The sweeps of a form, and those of its intervals' ends that compute anything."""

    sweeps: Sweeps
    closings: tuple[Closing, ...]

    @property
    def stored(self) -> tuple[tuple[str, int], ...]:
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
        """The kernel of a form: arguments by row, memories in and out."""
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
        lines += [*kernel.windowed(lay), *self._kept(), *self._body(sections), f"        {WAIT}"]
        lines += ["    if READ:"] if self.resident() else []
        for state in self.resident():
            text = kernel.store_state(state, f"end_{state.name}", "memory", state.name)
            lines.append(f"        {text}")
        return "\n".join(lines) + "\n"

    def _kept(self) -> Iterator[str]:
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

    def _body(self, sections: list[Section]) -> Iterator[str]:
        """The sections of a chunk; memories move on in the last sweep."""
        output = self.lay.plan.output
        anew = any(OUTPUT in moves for moves in self.lay.plan.closed.values())
        for number, section in enumerate(sections):
            yield from self.steps(section)
            if output in section.ends and not anew:
                yield "        if READ:"
                yield f"            {kernel.store_output(self.lay)}"
            last = number == len(sections) - 2
            for found in section.loops:
                yield from self.sweep(found, self._moves(found.size) if last else {})
        yield from self._moved()
        for closing in self.closings:
            yield from self._closed(closing)
        if anew:
            yield "        if READ:"
            yield f"            {kernel.store_output(self.lay)}"

    def _closed(self, closing: Closing) -> Iterator[str]:
        """The sweeps at the end of an interval, over the memories as the chunk has left them."""
        standing = {name: self.pointers[state] for name, state in closing.standing.items()}
        inner = replace(self, sweeps=closing.sweeps, pointers=self.pointers | standing, pad=12)
        held = {state.name: state for state in self.lay.states}
        yield f"        if {self._closes(closing.every)}:"
        yield f"            {WAIT}"
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
        yield from (f"            {line}" for line in self._kept_moves(closing.moves))

    def _kept_moves(self, moves: dict[str, str]) -> Iterator[str]:
        """Put in place what stays in registers, of what an interval's end moves."""
        ends = {self.lay.plan.output if s == OUTPUT else s: n for s, n in moves.items()}
        own = {s: n for s, n in ends.items() if not self.sweeps.axis(s)}
        if own:
            yield f"{', '.join(own)} = {', '.join(own.values())}"

    def _copies(self) -> Iterator[tuple[int, dict[str, str]]]:
        """What ends of intervals put in place that compute nothing."""
        computing = {closing.every for closing in self.closings}
        for every, moves in sorted(self.lay.plan.closed.items()):
            if every not in computing:
                yield every, moves

    def _moves(self, size: str) -> Moves:
        """The next memories along an axis, and what ends of intervals put in their place."""
        plan, found = self.lay.plan, Moves()
        for state in self.held()[size]:
            following = plan.following.get(state.name, state.name)
            own = found.setdefault(state.name, (set(), []))
            if following != state.name:
                own[0].add(following)
                own[1].append(self._store(state, following))
            for every, moves in self._copies():
                if state.name in moves:
                    own[0].add(moves[state.name])
                    own[1].append(f"if {self._closes(every)}:")
                    own[1].append(f"    {self._store(state, moves[state.name])}")
        return {name: own for name, own in found.items() if own[1]}

    def _store(self, state: Held, value: str) -> str:
        return kernel.store_state(state, *self.pointers[state.name], value)

    def _closes(self, every: int) -> str:
        done = "low + live" if self.lay.chunked else "chunk + 1"
        return f"tiles.closes(position, {done}, {every}, STEPS)"

    def _moved(self) -> Iterator[str]:
        """Put in place what stays in registers: next memories, and what ends of intervals move."""
        plan, swept = self.lay.plan, self.sweeps
        moves = {s: n for s, n in plan.following.items() if s != n and not swept.axis(s)}
        if moves:
            yield f"        {', '.join(moves)} = {', '.join(moves.values())}"
        for every, closing in self._copies():
            for line in self._kept_moves(closing):
                yield f"        if {self._closes(every)}:"
                yield f"            {line}"


def forward(form: Form, numbers: dict[str, str], name: str, doc: str) -> str:
    """The kernel of a form that goes along some axes."""
    lay = form.sweeps.lay
    places = {state.name: (f"end_{state.name}", "memory") for state in lay.states}
    return Forward(form.sweeps, numbers, places, 8, form.closings).kernel(name, doc)


def of_form(lay: Layout, along: tuple[str, ...]) -> Form:
    """The sweeps of a form along some axes.

    What ends of intervals compute goes through the memories again, as the chunk has left them.
    Raises ``NoTiles`` where they cannot be gone along.
    """
    plan, phases = lay.plan, lay.plan.phases()
    inside = {q.name: q for q in (*phases.before, *phases.scan)}
    computing = {c.every for c in phases.closings if c.statements}
    last = [n for s, n in plan.following.items() if s != n]
    last += [n for every, moves in plan.closed.items() if every not in computing
             for n in moves.values()]  # fmt: skip
    last += [read for c in phases.closings for q in c.statements for read in q.reads()
             if read in inside and not set(lay.sizes(read)) & set(along)]  # fmt: skip
    found = Sweeps(lay, along, inside, (plan.output,), tuple(dict.fromkeys(last)))
    if found.axis(plan.output):
        raise NoTiles("an output along the axis")
    standing = {n: s for s, n in plan.following.items() if s != n}
    closings = []
    for closing in phases.closings:
        if closing.statements:
            closings.append(_closing(found, closing, dict(standing)))
        standing |= {n: s for s, n in closing.moves.items() if s != OUTPUT}
    return Form(found, tuple(closings))


def _closing(form: Sweeps, closing: plans.Closing, standing: dict[str, str]) -> Closing:
    inside = {q.name: q for q in closing.statements}
    held = {state.name: state for state in form.lay.states}
    also = tuple(replace(held[state], name=name) for name, state in standing.items())
    last = tuple(dict.fromkeys(closing.moves.values()))
    sweeps = Sweeps(form.lay, form.along, inside, (), last, also=also, keeps=False)
    known = {load.name for load in (*form.lay.states, *also)} | {r.name for r in form.lay.rows}
    for quantity in closing.statements:
        for read in quantity.reads():
            if form.axis(read) and read not in known | set(inside):
                raise NoTiles(f"{read}, which an interval's end reads, is no memory")
    return Closing(closing.every, sweeps, closing.moves, standing)


# -- its gradient ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Backward(Printer):
    """The lines of a gradient's kernel."""

    back: Adjoint

    def kernel(self, name: str, doc: str) -> str:
        """The gradient's kernel: arguments, what stood at each chunk's start, gradients."""
        lay = self.lay
        sections = self.sweeps.sections()
        known = self.parameters(gradient.parameters(lay, self.back))
        lines = gradient.begun(lay, known, name, doc, self.sweeps.along)
        for state in self.resident():
            loaded = kernel.load_state(state, f"start_{state.name}", "memory")
            lines.append(f"    {state.name} = {loaded}")
        lines += [*self.copied("end", "memory", "start", "memory", 4), f"    {WAIT}"]
        lines += (gradient.CHUNKS if lay.chunked else gradient.TOKENS).splitlines()
        lines += kernel.windowed(lay)
        for state in (s for s in lay.given if not self.sweeps.axis(s.name)):
            loaded = kernel.load_state(state, f"kept_{state.name}", gradient.KEPT)
            lines.append(f"        {state.name} = {loaded}")
        lines += [f"        {line}" for line in gradient.closing(lay)]
        lines += [*self._body(sections), f"        {WAIT}"]
        for state in self.resident():
            text = kernel.store_state(state, f"end_{state.name}", "memory", state.name)
            lines.append(f"    {text}")
        return "\n".join(lines) + "\n"

    def _body(self, sections: list[Section]) -> Iterator[str]:
        for number, section in enumerate(sections):
            yield from self.steps(section)
            for name in section.ends:
                for text in self._given_back(name):
                    yield f"        {text}"
            last = number == len(sections) - 2
            for found in section.loops:
                yield from self.sweep(found, self._moves(found.size) if last else {})
        moves = self._next("")
        if moves:
            yield f"        {', '.join(moves)} = {', '.join(moves.values())}"

    def stored(self, name: str) -> Iterator[str]:
        """Store the gradients of arguments along the axis."""
        for text in self._given_back(name):
            yield f"            {text}"

    def _given_back(self, value: str) -> Iterator[str]:
        rows = {row.name: row for row in self.lay.rows}
        for argument, end in self.back.gradients.items():
            if end == value:
                yield gradient.store_gradient(self.lay, rows[argument], value)

    def _moves(self, size: str) -> Moves:
        held = {state.name: state for state in self.lay.states}
        return {
            s: ({n}, [kernel.store_state(held[s], *self.pointers[s], n)])
            for s, n in self._next(size).items()
        }

    def _next(self, size: str) -> dict[str, str]:
        following = self.lay.plan.following.items()
        return {s: n for s, n in following if s != n and self.sweeps.axis(s) == size}


def backward(
    sweeps: Sweeps, back: Adjoint, numbers: dict[str, str], name: str, doc: str
) -> str:  # fmt: skip
    """The kernel of the gradient of a form that goes along some axes."""
    places = {state.name: (f"end_{state.name}", "memory") for state in sweeps.lay.states}
    places |= {state.name: (f"kept_{state.name}", gradient.KEPT) for state in sweeps.lay.given}
    return Backward(sweeps, numbers, places, 8, back).kernel(name, doc)


def of_gradient(lay: Layout, back: Adjoint, along: tuple[str, ...]) -> Sweeps:
    """The sweeps of a gradient along some axes.

    Raises ``NoTiles`` where they cannot be gone along.
    """
    inside, (*ends, last) = gradient.groups(lay, back)
    found = tuple(dict.fromkeys(name for group in ends for name in group))
    return Sweeps(lay, along, {q.name: q for q in inside}, found, last)


# -- the axes --------------------------------------------------------------------------------


def axes(lay: Layout, spread: Callable[[tuple[str, ...]], Layout]) -> tuple[str, ...]:
    """The axes that leave the fewest memories whole, then the fewest axes, those of no argument
    first; none where none can be gone along.

    ``spread`` is the layout without functions of memories that are gone along.
    """
    matrices = [state for state in lay.states if len(state.sizes) > 1]
    sizes = dict.fromkeys(size for state in matrices for size in state.sizes)
    found = [along for along in subsets(tuple(sizes)) if _goes(along, spread)]
    own = {size for row in lay.rows for size in row.sizes}

    def order(along: tuple[str, ...]) -> tuple[int, int, int]:
        whole = sum(not set(state.sizes) & set(along) for state in matrices)
        return whole, len(along), len(own & set(along))

    return min(found, key=order, default=())


def _goes(along: tuple[str, ...], spread: Callable[[tuple[str, ...]], Layout]) -> bool:
    try:
        return all(sweeps.sections() for sweeps in of_form(spread(along), along).all)
    except NoTiles:
        return False
