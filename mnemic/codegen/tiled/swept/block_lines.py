"""The lines of kernels whose memories lie in device memory, and are looped over by blocks.

The memories stand where the final ones belong, and a barrier for all threads of a program separates
the sweeps. A *sweep* is one loop over all blocks of an axis.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from mnemic.codegen.emit import wrapped
from mnemic.codegen.plan import Call, Fused, Given, Quantity
from mnemic.codegen.tiled import backward as gradient
from mnemic.codegen.tiled import kernel, roots
from mnemic.codegen.tiled.layout import ROWS, SOURCES, Held, Layout, Row, at, turned
from mnemic.codegen.tiled.statements import multiplies, square, statement
from mnemic.codegen.tiled.swept.along_axis import tops
from mnemic.codegen.tiled.swept.sections import (
    Again,
    End,
    Load,
    Loop,
    Scratch,
    Section,
    Step,
    Store,
    Sum,
)
from mnemic.codegen.tiled.swept.sweeps import Sweeps

WAIT = "tl.debug_barrier()"
"""The line behind which all threads see what each has stored."""

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

    def held(self) -> dict[str, list[Held]]:
        """Return the memories along each axis."""
        found: dict[str, list[Held]] = {size: [] for size in self.sweeps.along}
        for state in self.lay.states:
            if axis := self.sweeps.axis(state.name):
                found[axis].append(state)
        return found

    def resident(self) -> list[Held]:
        """Return the memories that have no swept axis, and so stay in registers."""
        return [state for state in self.lay.states if not self.sweeps.axis(state.name)]

    @property
    def some(self) -> bool:
        """Whether the number of a sweep's blocks is hidden from the compiler (see ``SOME``)."""
        return False

    @property
    def lean(self) -> bool:
        """Whether a cut may be lean."""
        return False

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
        """Write what a section computes before its sweep."""
        for step in section.steps:
            yield from self.line(step, self.pad)
        if any(isinstance(step, Store) for step in section.steps):
            yield f"{' ' * self.pad}{WAIT}"

    def line(self, step: Load | Quantity | Store, pad: int) -> Iterator[str]:
        """Write one load, statement or store."""
        match step:
            case Row():
                yield f"{' ' * pad}{step.name} = {kernel.load_row(self.lay, step)}"
            case Held(name=name):
                yield f"{' ' * pad}{name} = {kernel.load_state(step, *self.pointers[name])}"
            case Scratch(name=name):
                shape, place = self._scratch(step)
                yield f"{' ' * pad}{name} = tiles.load_{shape}({place}, REAL)"
            case Store(scratch=scratch):
                shape, place = self._scratch(scratch)
                yield f"{' ' * pad}tiles.store_{shape}({place}, {scratch.name})"
            case Quantity(op=Given()):
                return
            case Quantity():
                source = self._rest(step) or statement(
                    self.lay, step, {}, apart=self.lay.chunked, squares=self.squares
                )
                yield from wrapped(step.name, source, self._cited(step), pad)

    @cached_property
    def squares(self) -> bool:
        """Whether squares of rows stand apart: if one is the last product of a chunk, loops aside,
        and others have channels, which should lie as is best for those (``latest`` tells why)."""
        steps = [step for section in self.sweeps.sections() for step in section.steps]
        products = [step for step in steps if isinstance(step, Quantity) and multiplies(step)]
        found = [square(self.lay, q) for q in products if not self.sweeps.crosses(q.name)]
        return self.lay.chunked and bool(found) and found[-1] and not all(found)

    def _scratch(self, found: Scratch) -> tuple[str, str]:
        """Return whether a scratch has rows or is a vector, and its pointer, number and places."""
        names, sizes = self.sweeps.places(found.size), self.lay.sizes(found.name)
        number = f"{len(names)} * memory + {names.index(found.name)}"
        own = f"{at(found.size)}, {found.size}"
        if self.lay.chunked:
            number = f"({number}) * {SOURCES if self.lay.sourced else ROWS}"
        if len(sizes) == 2:
            number += f", 1, {at(sizes[0])}, {sizes[0]}"
        return "rows" if len(sizes) == 2 else "vector", f"scratch_{found.size}, {number}, {own}"

    def parameters(self, known: list[str]) -> list[str]:
        """Return a kernel's parameters with those for rows that later sweeps load."""
        known = [name for name in known if self.lean or not name.startswith("LEAN")]
        own = [f"scratch_{size}" for (size,), _ in self.sweeps.stored()]
        place = known.index(kernel.NUMBERS[0])
        return [*known[:place], *own, *known[place:]]

    def _rest(self, quantity: Quantity) -> str:
        """Write the terms that a quantity adds to its sum over blocks when that is complete; empty
        if none."""
        if not isinstance(quantity.op, Fused) or not self.sweeps.crosses(quantity.name):
            return ""
        sign = "+" if quantity.op.sign > 0 else "-"
        return f"{quantity.op.addend} {sign} {sum_of(quantity)}"

    def _cited(self, quantity: Quantity) -> str:
        return gradient.cited(self.numbers, quantity.equation)

    def sweep(self, found: Loop, moving: Moves) -> Iterator[str]:
        """Write a loop over the blocks of an axis; each memory is updated after its last load."""
        if found.search:
            yield from self._search(found)
            return
        placed = {state: found.after({state, *needed}) for state, (needed, _) in moving.items()}
        space, inner = " " * self.pad, " " * (self.pad + 4)
        for quantity in found.sums:
            yield f"{space}{sum_of(quantity)} = {self._begun(quantity)}"
        yield from loop(found.size, self.pad, self.some)
        for number, step in enumerate((None, *found.steps)):
            yield from self._step(step) if step else ()
            for state in (s for s, done in placed.items() if done == number):
                yield from (f"{inner}{line}" for line in (WAIT, *moving[state][1]))
        if any(isinstance(step, Store) for step in found.steps):
            yield f"{space}{WAIT}"

    def _search(self, found: Loop) -> Iterator[str]:
        """Write a loop over the blocks for each step of a search for the root of their sum."""
        (quantity,) = found.sums
        assert isinstance(quantity.op, Call)
        sizes = self.lay.sizes(quantity.op.arguments[0])
        before, block, behind = roots.search(quantity, sizes, self._begun(quantity))
        space, inner = " " * self.pad, replace(self, pad=self.pad + 4)
        cited = self._cited(quantity)
        yield from (f"{space}# {cited}",) if cited else ()
        yield from (f"{space}{line}" for line in before)
        yield from loop(found.size, inner.pad, self.some)
        for step in found.steps:
            yield from () if isinstance(step, Sum) else inner._step(step)
        yield from (f"{space}{line}" for line in (*block, *behind))

    def _step(self, step: Step) -> Iterator[str]:
        """Write a step of a block."""
        pad = self.pad + 4
        match step:
            case Sum(quantity=quantity):
                cited = self._cited(quantity)
                yield from wrapped(sum_of(quantity), self._part(quantity), cited, pad)
            case End():
                yield from self.stored(step.name)
            case Again(load=load):
                yield f"{' ' * pad}if LEAN:"
                yield from self.line(load, pad + 4)
            case _:
                yield from self.line(step, pad)

    def _begun(self, quantity: Quantity) -> str:
        """Write what a sum (or a maximum) over blocks starts with."""
        tile = self._tile(quantity)
        if tops(quantity):
            return f"tl.full({tile}, float('-inf'), REAL)"
        return f"tl.zeros({tile}, REAL)"

    def _part(self, quantity: Quantity) -> str:
        """Write a sum (or a maximum) with one more block."""
        whole = quantity
        if isinstance(quantity.op, Fused):
            whole = Quantity(quantity.name, quantity.axes, quantity.op.product, quantity.equation)
        block, known = statement(self.lay, whole, {}, apart=self.lay.chunked), sum_of(quantity)
        return f"tl.maximum({known}, {block})" if tops(quantity) else f"{known} + {block}"

    def stored(self, name: str) -> Iterator[str]:
        """Store what a loop has made of rows: nothing but a gradient's kernel has such."""
        raise NotImplementedError(name)

    def _tile(self, quantity: Quantity) -> str:
        """Write the shape of a quantity's tile."""
        own = tuple(zip(quantity.axes, self.lay.sizes(quantity.name), strict=True))
        sizes = [size or "C" for _, size in (own[::-1] if turned(quantity.axes) else own)]
        tall = {"C", "SOURCES"}
        names = [size if size in tall else f"B{size}" for size in sizes]
        return f"({', '.join(names)},)" if names else "()"


SOME = (
    "        some = tl.minimum(live, 1)  # one; for all the compiler knows there may be no blocks"
)
"""The number 1, in a form that the compiler cannot know, by which the number of blocks is
multiplied.

If a sweep certainly had iterations, the compiler would hoist addresses and factors for later
sweeps, into registers that a gradient does not have.
"""

ANEW = """\
        row, chunk, memory = row + (some - 1), chunk + (some - 1), memory + (some - 1)
        if LEAN:
            t = t + (some - 1)"""
"""The same numbers as before, in a form in which the compiler takes them for others.

So it computes the addresses of what a section reads again, and keeps none of earlier sections (in a
lean cut not those of rows either).
"""


def loop(size: str, pad: int, some: bool = False) -> list[str]:
    """Write the head of a loop over the blocks of an axis."""
    space, end = " " * pad, f"some * {size}" if some else size
    return [
        f"{space}for low_{size} in tl.range(0, {end}, B{size}, disable_licm=True):",
        f"{space}    at_{size} = low_{size} + tl.arange(0, B{size})",
        f"{space}    in_{size} = at_{size} < {size}",
    ]


def sum_of(quantity: Quantity) -> str:
    """Name a sum over blocks: as its quantity, unless something is added to it."""
    return f"{quantity.name}_sum" if isinstance(quantity.op, Fused) else quantity.name
