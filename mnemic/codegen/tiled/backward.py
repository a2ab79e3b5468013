"""The source of a gradient's kernel: an adjoint plan, run from the last chunk to the first."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from mnemic.codegen.adjoint import Adjoint
from mnemic.codegen.emit import wrapped
from mnemic.codegen.plan import Given, Quantity
from mnemic.codegen.tiled.kernel import (
    CUT,
    JIT,
    LAST,
    NUMBERS,
    load_row,
    load_state,
    opening,
    store_row,
    store_state,
    store_view,
    windowed,
)
from mnemic.codegen.tiled.latest import condition, latest
from mnemic.codegen.tiled.layout import CLOSES, Held, Layout, Row
from mnemic.codegen.tiled.outlasting import (
    Between,
    Fresh,
    Lean,
    Load,
    Part,
    Scratches,
    Store,
    plain,
    split_steps,
)
from mnemic.codegen.tiled.schedule import Stage, light, stages, waiting
from mnemic.codegen.tiled.statements import statement
from mnemic.codegen.tiled.windows import ROWS

CHUNKS = """\
    for done in tl.range(0, until - since, disable_licm=True):
        chunk = until - 1 - done
        low = tl.maximum(first + (chunk - 1) * ROWS, 0)
        live = tl.minimum(first + chunk * ROWS, length) - low
        row = origin + tl.cast(low, tl.int64) * heads
        t = tl.arange(0, C)
"""

BARRIER = ("        if LEAN:", "            tl.debug_barrier()")
"""What was loaded before is loaded anew behind it: Triton would keep it in registers where nothing
was stored in between. And all threads see what others stored."""

TOKENS = """\
    for done in range(0, until - since):
        chunk = until - 1 - done
        row = origin + tl.cast(chunk, tl.int64) * heads
"""


KEPT = "memory * PIECE + chunk - since"
"""The number of the memory that stood at a chunk's start."""


def backward(
    staged: "Staged", back: Adjoint, numbers: dict[str, str], name: str, doc: str
) -> str:  # fmt: skip
    """Write the kernel of a form's gradient: arguments, states at chunks' starts, gradients."""
    lay = staged.lay
    known = parameters(lay, back, staged.scratch.parameters)
    lines = [*begun(lay, known, name, doc), *_begun(lay)]
    lines += (CHUNKS if lay.chunked else TOKENS).splitlines()
    lines += windowed(lay)
    if lay.given:
        lines += ["        if not LEAN:", *(f"            {_load(lay, x)}" for x in lay.given)]
    lines += [f"        {line}" for line in closing(lay)]
    lines += _body(staged, back, numbers)
    lines += _ended(lay)
    return "\n".join(lines) + "\n"


def begun(
    lay: Layout, known: list[str], name: str, doc: str, along: tuple[str, ...] = ()
) -> list[str]:
    """Write the head of a gradient's kernel: parameters, a program's memory, and its piece."""
    lines = [JIT, f"def {name}("]
    lines += [f"    {part}," for part in known]
    lines += ["):", f'    """{doc}"""', *opening(lay, along)]
    lines += [
        "    since = piece * PIECE",
        "    until = tl.minimum(chunks, since + PIECE)",
        "    part = tl.program_id(1).to(tl.int64)",
        "    own = memory + part * tl.num_programs(0)",
        "    sequences = tl.num_programs(0) // heads",
        "    behind = part * tiles.rows_in_all(bounds, sequences, total) * heads",
    ]
    if lay.shared:
        before = f"sequences * {lay.windows.width - 1} * heads"
        lines.append(f"    at_behind = behind + part * {before}")
    return lines


def parameters(lay: Layout, back: Adjoint, scratch: Iterable[str] = ()) -> list[str]:
    """List a gradient kernel's parameters: pointers (those of its ``scratch`` last), numbers,
    constants."""
    pointers = [f"rows_{row.name}" for row in lay.rows]
    pointers += [f"kept_{state.name}" for state in lay.given]
    for state in lay.states:
        pointers += [f"start_{state.name}", f"end_{state.name}"]
    pointers += [*(f"grad_{name}" for name in back.gradients), *scratch]
    numbers = NUMBERS
    sizes = [name for size in lay.channels for name in (size, f"B{size}")]
    sources = ["SOURCES"] if lay.sourced else []
    constants = [*sizes, "C", *sources, *CUT, "LEAN", "PRECISION", "REAL"]
    return [*pointers, *numbers, *(f"{name}: tl.constexpr" for name in constants)]


def _number(lay: Layout, state: Held) -> str:
    """Return the index of a memory; where blocks of values each have a partial gradient, that of
    the part."""
    return "memory" if not lay.split or lay.split in state.sizes else "own"


def _load(lay: Layout, state: Held) -> str:
    """Write the load of a state at the chunk's start, or of the gradient of a state at its end."""
    place = (f"kept_{state.name}", KEPT)
    if state in lay.states:
        place = (f"end_{state.name}", _number(lay, state))
    loaded = load_state(state, *place)
    if lay.chunked and len(state.sizes) == 2:
        loaded = f"{loaded.replace('matrix', 'matrix_apart').removesuffix(', REAL)')}, live, REAL)"
    return f"{state.name} = {loaded}"


def _begun(lay: Layout) -> Iterator[str]:
    """Write the loads of the gradients of the states after a piece; in a lean cut, a copy of them
    in device memory to the place of those before the piece."""
    if not lay.states:
        return
    yield "    if LEAN:"
    for state in lay.states:
        number = _number(lay, state)
        start = load_state(state, f"start_{state.name}", number)
        head, tail = store_state(state, f"end_{state.name}", number, "@").split("@")
        yield from (f"        {head.rstrip()}", f"            {start}", f"        {tail}")
    yield "        tl.debug_barrier()"
    yield "    else:"
    for state in lay.states:
        place = (f"start_{state.name}", _number(lay, state))
        yield f"        {state.name} = {load_state(state, *place)}"


def _store_gradients(lay: Layout) -> Iterator[str]:
    """Write a lean cut's stores of the gradients of the states before a chunk, once those after it
    have all been read."""
    moves = {s: n for s, n in lay.plan.following.items() if s != n}
    if not moves:
        return
    yield from BARRIER
    for state in lay.states:
        if state.name in moves:
            place = (f"end_{state.name}", _number(lay, state))
            yield f"            {store_state(state, *place, moves[state.name])}"
    yield "            tl.debug_barrier()"


def _ended(lay: Layout) -> Iterator[str]:
    """Write how a chunk passes the gradients of states to the chunk before it, and their final
    stores."""
    moves = {s: n for s, n in lay.plan.following.items() if s != n}
    if moves:
        yield "        if not LEAN:"
        yield f"            {', '.join(moves)} = {', '.join(moves.values())}"
    if lay.states:
        yield "    if not LEAN:"
    for state in lay.states:
        place = (f"end_{state.name}", _number(lay, state))
        yield f"        {store_state(state, *place, state.name)}"


def closing(lay: Layout) -> Iterator[str]:
    """Yield the lines that compute, for each interval, whether it ends with the chunk."""
    done = "low + live" if lay.chunked else "chunk + 1"
    for name in lay.plan.arguments():
        if name.startswith(CLOSES):
            every = name.removeprefix(CLOSES)
            yield f"{name} = tl.where(tiles.closes(position, {done}, {every}, STEPS), 1.0, 0.0)"


@dataclass(frozen=True)
class Staged:
    """A gradient's stages: one for each argument's gradient, then one for the states'.

    If a product is moved to the end, ``tail`` are its quantities and ``waiting`` is their stage.
    """

    lay: Layout
    stages: tuple[Stage, ...]
    tail: tuple[str, ...]
    waiting: Stage | None

    @classmethod
    def of(cls, lay: Layout, back: Adjoint) -> "Staged":
        """Sort the statements of a gradient into stages."""
        tail, memories = _tail(lay, back), (*lay.given, *lay.states)
        if not tail:
            return cls(lay, tuple(staged(lay, back)), (), None)
        found, last = waiting(lay, *groups(lay, back), tail, memories)
        ends = tuple(back.gradients.values())
        place = ends.index(tail[-1])
        found[place] = replace(found[place], ends=())  # what waits reads them, nothing else
        return cls(lay, tuple(found), tail, last)

    @cached_property
    def parts(self) -> list[Part]:
        """The steps of each stage (that of ``waiting`` last), with a lean cut's loads and stores
        between them."""
        every = (*self.stages, *((self.waiting,) if self.waiting else ()))
        if not self.lay.chunked:
            return [plain(stage) for stage in every]
        inside = [step for stage in every for step in stage.steps if isinstance(step, Quantity)]
        cheap = light(self.lay, inside, {row.name for row in self.lay.rows})
        return split_steps(self.lay, every, cheap)

    @cached_property
    def scratch(self) -> Scratches:
        """Where a lean cut stores what later parts read."""
        return Scratches(self.lay, self.parts)


def staged(lay: Layout, back: Adjoint) -> list[Stage]:
    """Return a stage for the gradient of each argument, and then one for those of the states."""
    return stages(lay, *groups(lay, back), (*lay.given, *lay.states))


def groups(lay: Layout, back: Adjoint) -> tuple[list[Quantity], tuple[tuple[str, ...], ...]]:
    """Return a gradient's statements, and for each stage the names of the quantities it must
    produce."""
    phases = lay.plan.phases()
    inside = [q for q in (*phases.before, *phases.scan) if not isinstance(q.op, Given)]
    following = tuple(n for s, n in lay.plan.following.items() if s != n)
    return inside, (*((g,) for g in back.gradients.values()), following)


def _tail(lay: Layout, back: Adjoint) -> tuple[str, ...]:
    """Return the quantities of one argument's gradient that can come after the states'
    gradients."""
    known = list(back.gradients.values())
    ends = [end for end in known if known.count(end) == 1]
    return latest(lay.plan, ends) if lay.chunked else ()


def _body(staged: Staged, back: Adjoint, numbers: dict[str, str]) -> Iterator[str]:
    """Write the gradients of a chunk's rows, each stored when it is known, then those of states."""
    lay, tail, last = staged.lay, staged.tail, staged.waiting
    rows = {row.name: row for row in lay.rows}
    stages = [[*lines] for lines in _lines(staged, numbers)]
    last_lines = []
    if last:
        argument = next(name for name, end in back.gradients.items() if end == tail[-1])
        store = f"        {store_gradient(lay, rows[argument], tail[-1])}"
        last_lines = [f"    {line}" for line in (*stages.pop(), store)]
    for lines, (argument, end) in zip(stages, [*back.gradients.items(), ("", "")], strict=True):
        yield from lines
        if last and argument and end == tail[-1]:
            yield f"        if not {condition(lay, tail)}:"
            yield from last_lines
            yield from BARRIER
        elif argument:
            yield f"        {store_gradient(lay, rows[argument], end)}"
    early = not last or not any(isinstance(step, Held) for step in last.steps)
    yield from _store_gradients(lay) if early else ()
    if last:
        yield f"        if {condition(lay, tail)}:{LAST}"
        yield from last_lines
    yield from () if early else _store_gradients(lay)


def store_gradient(lay: Layout, row: Row, value: str) -> str:
    """Write the store of a gradient of rows; where blocks of values share them, each stores its
    part."""
    whole = not lay.split or lay.split in row.sizes
    pointer = f"grad_{row.name}"
    if row.view == ROWS:
        text = store_row(lay, pointer, value, row.sizes)
    else:
        text = store_view(lay, row, pointer, value)
    if whole:
        return text
    text = text.replace(", row,", ", row + behind,", 1)
    return text.replace(", at_seen,", ", at_seen + at_behind,", 1)


def _lines(staged: Staged, numbers: dict[str, str]) -> Iterator[list[str]]:
    """Yield the lines of each stage."""
    for part in staged.parts:
        lines: list[str] = []
        for step in part:
            if isinstance(step, Lean):
                lines.append(f"        if {step.condition}:")
                lines += (f"            {x}" for s in step.steps for x in _lean(staged, s))
            elif isinstance(step, Row):
                lines.append(f"        {step.name} = {load_row(staged.lay, step)}")
            else:
                source = statement(staged.lay, step, {}, apart=True)
                lines += wrapped(step.name, source, cited(numbers, step.equation), 8)
        yield lines


def _lean(staged: Staged, step: Between) -> Iterator[str]:
    """Yield the lines of a step that only lean cuts run."""
    lay = staged.lay
    match step:
        case Row():
            yield f"{step.name} = {load_row(lay, step)}"
        case Held():
            yield _load(lay, step)
        case Load(name=name):
            yield staged.scratch.load(name)
        case Store(name=name):
            yield staged.scratch.store(name)
        case Fresh():
            yield "row, chunk, memory, own = tiles.fresh(live, row, chunk, memory, own)"
            if lay.shared:
                yield "at_seen = tiles.anew(live, at_seen)"


def cited(numbers: dict[str, str], equation: str) -> str:
    """Return the number of a quantity's equation, or of the one whose gradient it belongs to."""
    found = numbers.get(equation.removeprefix("gradient of "), "")
    if not found or not equation.startswith("gradient of "):
        return found
    return f"gradient of {found}"
