"""An adjoint plan as the source of a kernel that goes from the last chunk to the first."""

from collections.abc import Iterator

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
from mnemic.codegen.tiled.schedule import Stage, Step, stages, waiting
from mnemic.codegen.tiled.statements import statement
from mnemic.codegen.tiled.windows import ROWS, SHARED

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


def backward(lay: Layout, back: Adjoint, numbers: dict[str, str], name: str, doc: str) -> str:
    """The kernel of a form's gradient: arguments, what stood at each chunk's start, gradients."""
    lines = [*begun(lay, parameters(lay, back), name, doc), *_begun(lay)]
    lines += (CHUNKS if lay.chunked else TOKENS).splitlines()
    lines += windowed(lay)
    if lay.given:
        lines += ["        if not LEAN:", *(f"            {_load(lay, x)}" for x in lay.given)]
    lines += [f"        {line}" for line in closing(lay)]
    lines += _body(lay, back, numbers)
    lines += _ended(lay)
    return "\n".join(lines) + "\n"


def begun(
    lay: Layout, known: list[str], name: str, doc: str, along: tuple[str, ...] = ()
) -> list[str]:
    """The head of a gradient's kernel: parameters, which memory a program runs, which piece."""
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
    if any(row.view in SHARED for row in lay.rows):
        before = f"sequences * {lay.windows.width - 1} * heads"
        lines.append(f"    at_behind = behind + part * {before}")
    return lines


def parameters(lay: Layout, back: Adjoint) -> list[str]:
    """The kernel's parameters: pointers, numbers, constants."""
    pointers = [f"rows_{row.name}" for row in lay.rows]
    pointers += [f"kept_{state.name}" for state in lay.given]
    for state in lay.states:
        pointers += [f"start_{state.name}", f"end_{state.name}"]
    pointers += [f"grad_{name}" for name in back.gradients]
    numbers = NUMBERS
    sizes = [name for size in lay.channels for name in (size, f"B{size}")]
    sources = ["SOURCES"] if lay.sourced else []
    constants = [*sizes, "C", *sources, *CUT, "LEAN", "PRECISION", "REAL"]
    return [*pointers, *numbers, *(f"{name}: tl.constexpr" for name in constants)]


def _number(lay: Layout, state: Held) -> str:
    """A memory's number; each block of values has its own part of what it does not split."""
    return "memory" if not lay.split or lay.split in state.sizes else "own"


def _load(lay: Layout, state: Held) -> str:
    """Load what stood at the chunk's start, or the gradient of what stood at its end."""
    place = (f"kept_{state.name}", KEPT)
    if state in lay.states:
        place = (f"end_{state.name}", _number(lay, state))
    loaded = load_state(state, *place)
    if lay.chunked and len(state.sizes) == 2:
        loaded = f"{loaded.replace('matrix', 'matrix_apart').removesuffix(', REAL)')}, live, REAL)"
    return f"{state.name} = {loaded}"


def _begun(lay: Layout) -> Iterator[str]:
    """The gradients of the states behind a piece, which a lean cut leaves in the device's memory,
    where their ends will be."""
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


def _kept(lay: Layout) -> Iterator[str]:
    """A lean cut's gradients of the states before a chunk, when all is read of those behind it."""
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
    """The gradients of the states before a chunk, and behind the loop those before all of it."""
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
    """Whether each interval ends with the chunk."""
    done = "low + live" if lay.chunked else "chunk + 1"
    for name in lay.plan.arguments():
        if name.startswith(CLOSES):
            every = name.removeprefix(CLOSES)
            yield f"{name} = tl.where(tiles.closes(position, {done}, {every}, STEPS), 1.0, 0.0)"


def staged(lay: Layout, back: Adjoint) -> list[Stage]:
    """What the gradient of each argument needs, and then those of the states."""
    return stages(lay, *groups(lay, back), (*lay.given, *lay.states))


def groups(lay: Layout, back: Adjoint) -> tuple[list[Quantity], tuple[tuple[str, ...], ...]]:
    """The statements, and the ends of stages."""
    phases = lay.plan.phases()
    inside = [q for q in (*phases.before, *phases.scan) if not isinstance(q.op, Given)]
    following = tuple(n for s, n in lay.plan.following.items() if s != n)
    return inside, (*((g,) for g in back.gradients.values()), following)


def _tail(lay: Layout, back: Adjoint) -> tuple[str, ...]:
    """What may wait until the gradients of the states are there, of one argument's gradient."""
    known = list(back.gradients.values())
    ends = [end for end in known if known.count(end) == 1]
    return latest(lay.plan, ends, lay.axes.table) if lay.chunked else ()


def _body(lay: Layout, back: Adjoint, numbers: dict[str, str]) -> Iterator[str]:
    """The gradients of a chunk's rows, each stored when it is known, then those of the states."""
    rows = {row.name: row for row in lay.rows}
    tail, last_lines = _tail(lay, back), []
    if tail:
        found, last = waiting(lay, *groups(lay, back), tail, (*lay.given, *lay.states))
        argument = next(name for name, end in back.gradients.items() if end == tail[-1])
        last_lines = [*_lines(lay, last.steps, numbers, 12)]
        last_lines.append(f"            {store_gradient(lay, rows[argument], tail[-1])}")
    else:
        found = staged(lay, back)
    for stage, argument in zip(found, [*back.gradients, ""], strict=True):
        yield from _lines(lay, stage.steps, numbers, 8)
        if tail and argument and back.gradients[argument] == tail[-1]:
            yield f"        if not {condition(lay, tail)}:"
            yield from last_lines
            yield from BARRIER
        elif argument:
            yield f"        {store_gradient(lay, rows[argument], stage.ends[0])}"
    early = not tail or not any(isinstance(step, Held) for step in last.steps)
    yield from _kept(lay) if early else ()
    if tail:
        yield f"        if {condition(lay, tail)}:{LAST}"
        yield from last_lines
    yield from () if early else _kept(lay)


def store_gradient(lay: Layout, row: Row, value: str) -> str:
    """Store a gradient of rows; of what blocks share, each has a part of its own."""
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


def _lines(
    lay: Layout, steps: tuple[Step, ...], numbers: dict[str, str], indent: int
) -> Iterator[str]:
    for step in steps:
        if isinstance(step, Row):
            yield f"{' ' * indent}{step.name} = {load_row(lay, step)}"
            continue
        if isinstance(step, Held):
            yield f"{' ' * indent}if LEAN:"
            yield f"{' ' * indent}    {_load(lay, step)}"
            continue
        source = statement(lay, step, {}, apart=True)
        yield from wrapped(step.name, source, cited(numbers, step.equation), indent)


def cited(numbers: dict[str, str], equation: str) -> str:
    """The number of a quantity's equation, or of the one whose gradient it belongs to."""
    found = numbers.get(equation.removeprefix("gradient of "), "")
    if not found or not equation.startswith("gradient of "):
        return found
    return f"gradient of {found}"
