"""The kernel of a gradient that goes along axes of its memories."""

from collections.abc import Iterator
from dataclasses import dataclass

from mnemic.codegen.adjoint import Adjoint
from mnemic.codegen.tiled import backward as gradient
from mnemic.codegen.tiled import kernel
from mnemic.codegen.tiled.layout import Layout
from mnemic.codegen.tiled.swept.block_lines import ANEW, SOME, WAIT, Moves, Printer
from mnemic.codegen.tiled.swept.lean import leanly
from mnemic.codegen.tiled.swept.sections import Section
from mnemic.codegen.tiled.swept.sweeps import Sweeps


@dataclass(frozen=True)
class Backward(Printer):
    """The lines of a gradient's kernel."""

    back: Adjoint

    @property
    def some(self) -> bool:
        """Whether the compiler is not to know that a sweep passes by any block."""
        return self.lay.chunked

    @property
    def lean(self) -> bool:
        """Whether a cut may be lean."""
        return self.lay.chunked

    def kernel(self, name: str, doc: str) -> str:
        """Write the gradient's kernel: arguments, what stood at each chunk's start, gradients."""
        lay = self.lay
        sections = self.sweeps.sections()
        sections = leanly(self.sweeps, sections) if self.lean else sections
        known = self.parameters(gradient.parameters(lay, self.back))
        lines = gradient.begun(lay, known, name, doc, self.sweeps.along)
        for state in self.resident():
            loaded = kernel.load_state(state, f"start_{state.name}", "memory")
            lines.append(f"    {state.name} = {loaded}")
        lines += [*self.copied("end", "memory", "start", "memory", 4), f"    {WAIT}"]
        lines += (gradient.CHUNKS if lay.chunked else gradient.TOKENS).splitlines()
        lines += [*kernel.windowed(lay), *([SOME] if self.some else [])]
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
            yield from ANEW.splitlines() if number and self.some else ()
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
    """Write the kernel of the gradient of a form that goes along some axes."""
    places = {state.name: (f"end_{state.name}", "memory") for state in sweeps.lay.states}
    places |= {state.name: (f"kept_{state.name}", gradient.KEPT) for state in sweeps.lay.given}
    return Backward(sweeps, numbers, places, 8, back).kernel(name, doc)


def of_gradient(lay: Layout, back: Adjoint, along: tuple[str, ...]) -> Sweeps:
    """Return the sweeps of a gradient along some axes.

    Raises ``NoTiles`` where they cannot be gone along.
    """
    inside, (*ends, last) = gradient.groups(lay, back)
    found = tuple(dict.fromkeys(name for group in ends for name in group))
    return Sweeps(lay, along, {q.name: q for q in inside}, found, last)
