"""The source of one Triton kernel that runs a plan over a whole sequence, with the states on
chip."""

from collections.abc import Iterator

from mnemic.codegen.emit import OUTPUT, at_once, wrapped
from mnemic.codegen.plan import Given, Quantity
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.latest import condition, latest
from mnemic.codegen.tiled.layout import Held, Layout, Row
from mnemic.codegen.tiled.schedule import Stage, Step, stages, waiting
from mnemic.codegen.tiled.statements import statement
from mnemic.codegen.tiled.windows import BAND, ROWS, SHARED, TAIL

CHUNKS = """\
    for chunk in tl.range(since, until, disable_licm=True):
        low = tl.maximum(first + (chunk - 1) * ROWS, 0)
        live = tl.minimum(first + chunk * ROWS, length) - low
        row = origin + tl.cast(low, tl.int64) * heads
"""

PIECE = """\
    since, until = 0, chunks
    if not READ:
        since = piece * PIECE
        until = tl.minimum(chunks, since + PIECE)
"""

TOKENS = """\
    for chunk in range(since, until):
        row = origin + tl.cast(chunk, tl.int64) * heads
"""


NUMBERS = ["positions", "bounds", "total", "heads", "piece", "pieces"]
"""Where sequences lie (two pointers or None), and which piece of them a launch is for."""

LAST = "  # as the last product lies, all lie: warps share columns"
"""Comment in kernels where the last product decides the layout of all others (``latest`` says
how)."""

JIT = '@triton.jit(do_not_specialize=["piece", "pieces"])'
"""Without it each of a gradient's first pieces would be compiled anew."""

CUT = ["ROWS", "STEPS", "PIECE", "ALIGNED"]
"""How sequences are cut into chunks, and those into pieces."""


def forward(lay: Layout, numbers: dict[str, str], name: str, doc: str) -> str:
    """Write the kernel of a form: arguments by row, states in and out."""
    lines = [JIT, f"def {name}("]
    lines += [f"    {part}," for part in parameters(lay)]
    lines += ["):", f'    """{doc}"""', *opening(lay), *PIECE.splitlines()]
    if lay.states:
        lines.append("    from_piece = memory if READ else (slot + piece) * heads + memory % heads")
    for state in lay.states:
        lines.append(f"    {state.name} = {load_state(state, f'start_{state.name}', 'from_piece')}")
    lines += (CHUNKS if lay.chunked else TOKENS).splitlines()
    lines += windowed(lay)
    lines += _store_states(lay)
    lines += _body(lay, numbers)
    lines += ["    if READ:"] if lay.states else []
    for state in lay.states:
        lines.append(f"        {store_state(state, f'end_{state.name}', 'memory', state.name)}")
    return "\n".join(lines) + "\n"


def _store_states(lay: Layout) -> Iterator[str]:
    """Write the stores of the states at the start of every piece (of every chunk, in a launch that
    recomputes a piece for the gradient)."""
    if not lay.states:
        return
    yield "        if KEEP and READ and chunk % PIECE == 0:"
    yield "            place = (slot + chunk // PIECE) * heads + memory % heads"
    for state in lay.states:
        yield f"            {store_state(state, f'kept_{state.name}', 'place', state.name)}"
    yield "        if not READ:"
    yield "            place = memory * PIECE + chunk - since"
    for state in lay.states:
        yield f"            {store_state(state, f'kept_{state.name}', 'place', state.name)}"


def parameters(lay: Layout) -> list[str]:
    """List a form kernel's parameters: pointers, numbers, constants."""
    pointers = [f"rows_{row.name}" for row in lay.rows] + ["rows_out"]
    for state in lay.states:
        pointers += [f"start_{state.name}", f"end_{state.name}", f"kept_{state.name}"]
    numbers = NUMBERS
    sizes = [name for size in lay.channels for name in (size, f"B{size}")]
    sources = ["SOURCES"] if lay.sourced else []
    constants = [*sizes, "C", *sources, *CUT, "KEEP", "READ", "PRECISION", "REAL"]
    return [*pointers, *numbers, *(f"{name}: tl.constexpr" for name in constants)]


def opening(lay: Layout, along: tuple[str, ...] = ()) -> list[str]:
    """Write the head of a kernel's body: which memory the program runs, where its sequence lies,
    and the index of each axis of channels, except those that the program loops over by blocks
    (``along``)."""
    lines = [
        "    memory = tl.program_id(0).to(tl.int64)",
        "    sequence = memory // heads",
        "    begin = tiles.begin_of(bounds, sequence, total, STEPS)",
        "    length = tiles.length_of(bounds, sequence, total, STEPS)",
        "    origin = begin * heads + memory % heads",
        "    position = tiles.position_of(positions, sequence)",
    ]
    if lay.chunked:
        lines += [
            "    first = tiles.first_of(position, ROWS, STEPS, ALIGNED)",
            "    chunks = tiles.chunks_of(length, first, ROWS)",
            "    slot = tiles.slot_of(bounds, sequence, begin, pieces, PIECE * ROWS)",
            "    t = tl.arange(0, C)",
        ]
    else:
        lines += [
            "    chunks = length",
            "    slot = tiles.slot_of(bounds, sequence, begin, pieces, PIECE)",
        ]
    if lay.sourced:
        lines.append("    at_SOURCES = tl.arange(0, SOURCES)")
    if lay.shared:
        before = f"sequence * {lay.windows.width - 1}"  # rows before each sequence's first
        lines.append(f"    at_tail = (begin + {before}) * heads + memory % heads")
    for size in (name for name in lay.channels if name not in along):
        block = f"tl.program_id(1) * B{size} + " if size == lay.split else ""
        lines.append(f"    at_{size} = {block}tl.arange(0, B{size})")
        lines.append(f"    in_{size} = at_{size} < {size}")
    return lines


def windowed(lay: Layout) -> list[str]:
    """Write where the windows of a chunk (or token) begin, and how many of their rows exist."""
    if not lay.shared:
        return []
    if not lay.chunked:
        return ["        at_seen = at_tail + tl.cast(chunk, tl.int64) * heads"]
    width = lay.windows.width
    count = f"live * {width}" if lay.windows.slots else f"live + {width - 1}"
    lines = ["        at_seen = at_tail + tl.cast(low, tl.int64) * heads"]
    return [*lines, f"        live_SOURCES = {count}"] if lay.sourced else lines


# -- loads and stores ------------------------------------------------------------------------


def load_row(lay: Layout, row: Row) -> str:
    """Write the load of a chunk's rows (or a token's) of an argument."""
    pointer = f"rows_{row.name}"
    if row.view != ROWS:
        return f"tiles.load_{_viewed(lay, row, pointer)}, REAL)"
    if not lay.chunked:
        if not row.sizes:
            return f"tiles.load_number({pointer}, row, REAL)"
        (size,) = row.sizes
        return f"tiles.load_vector({pointer}, row, at_{size}, {size}, REAL)"
    if not row.sizes:
        function = "load_logs" if row.fill == "zero" else "load_column"
        return f"tiles.{function}({pointer}, row, heads, t, live, REAL)"
    if len(row.sizes) > 1:
        raise NoTiles("an argument of two axes a row")
    (size,) = row.sizes
    return f"tiles.load_rows({pointer}, row, heads, t, live, at_{size}, {size}, REAL)"


def _viewed(lay: Layout, row: Row, pointer: str) -> str:
    """Write the end of the name, and the arguments, of the function that loads a window's view; the
    functions that store or add to the view take the same."""
    width, places = lay.windows.width, "".join(f", at_{size}, {size}" for size in row.sizes)
    if row.view == BAND:
        return f"band({pointer}, row, heads, t, live, at_SOURCES, {width}"
    if not lay.chunked:
        return f"window({pointer}, at_seen, heads{places}"
    if row.view == TAIL:
        return f"rows({pointer}, at_seen, heads, at_SOURCES, live_SOURCES{places}"
    if not row.sizes:
        return f"weights({pointer}, row, heads, at_SOURCES, live_SOURCES, {width}"
    return f"slots({pointer}, at_seen, heads, at_SOURCES, live_SOURCES, {width}{places}"


def store_view(lay: Layout, row: Row, pointer: str, value: str) -> str:
    """Write the store of the gradient of a window's view, or an addition where windows share
    entries."""
    text = _viewed(lay, row, pointer)
    verb = "add" if overlaps(row) else "store"
    return f"tiles.{verb}_{text}, {value})"


def overlaps(row: Row) -> bool:
    """Return whether several windows, perhaps of different chunks, read the same entries of an
    argument."""
    return row.view in SHARED and bool(row.sizes)


def store_output(lay: Layout) -> str:
    """Write the store of the output's rows."""
    return store_row(lay, "rows_out", lay.plan.output, (lay.value,))


def store_row(lay: Layout, pointer: str, value: str, sizes: tuple[str, ...]) -> str:
    """Write the store of a chunk's rows (or a token's) of a quantity."""
    if not sizes:
        if lay.chunked:
            return f"tiles.store_column({pointer}, row, heads, t, live, {value})"
        return f"tiles.store_number({pointer}, row, {value})"
    (size,) = sizes
    if lay.chunked:
        return f"tiles.store_rows({pointer}, row, heads, t, live, at_{size}, {size}, {value})"
    return f"tiles.store_vector({pointer}, row, at_{size}, {size}, {value})"


def _places(state: Held) -> str:
    return ", ".join(f"at_{size}, {size}" for size in state.sizes)


def load_state(state: Held, pointer: str, number: str) -> str:
    """Write the load of a state, that of the memory with this number."""
    match len(state.sizes):
        case 0:
            return f"tiles.load_number({pointer}, {number}, REAL)"
        case 1:
            return f"tiles.load_vector({pointer}, {number}, {_places(state)}, REAL)"
        case _:
            return f"tiles.load_matrix({pointer}, {number}, {_places(state)}, REAL)"


def store_state(state: Held, pointer: str, number: str, value: str) -> str:
    """Write the store of a value as the state of the memory with this number."""
    match len(state.sizes):
        case 0:
            return f"tiles.store_number({pointer}, {number}, {value})"
        case 1:
            return f"tiles.store_vector({pointer}, {number}, {_places(state)}, {value})"
        case _:
            return f"tiles.store_matrix({pointer}, {number}, {_places(state)}, {value})"


# -- the body --------------------------------------------------------------------------------


def staged(lay: Layout) -> list[Stage]:
    """Return two stages: what a chunk's output needs, then its next states and the ends of
    intervals."""
    return stages(lay, *groups(lay))


def groups(lay: Layout) -> tuple[list[Quantity], tuple[tuple[str, ...], ...]]:
    """Return a form's statements, and for each stage the names of the quantities that it must
    produce."""
    plan = lay.plan
    phases = plan.phases()
    inside = [*phases.before, *phases.scan]
    late = tuple(n for c in phases.closings for q in c.statements for n in q.reads())
    late += tuple(n for moves in plan.closed.values() for n in moves.values())
    following = tuple(n for s, n in plan.following.items() if s != n)
    return inside, ((plan.output,), (*following, *late))


def _body(lay: Layout, numbers: dict[str, str]) -> list[str]:
    """Write a chunk's output, its next states, and what an interval's end puts in their place."""
    anew = any(OUTPUT in closing.moves for closing in lay.plan.phases().closings)
    store = ["        if READ:", f"            {store_output(lay)}"]
    tail = latest(lay.plan, (lay.plan.output,)) if lay.chunked else ()
    if anew or not tail:
        first, second = staged(lay)
        lines = list(_lines(lay, first.steps, numbers, 8, {}))
        lines += [] if anew else store
        lines += _lines(lay, second.steps, numbers, 8, {})
        lines += advance(lay, numbers)
        return lines + (store if anew else [])
    (first, second), last = waiting(lay, *groups(lay), tail)
    waits = condition(lay, tail)
    last_lines = [*_lines(lay, last.steps, numbers, 12, {}), *(f"    {line}" for line in store)]
    lines = [*_lines(lay, first.steps, numbers, 8, {}), f"        if not {waits}:", *last_lines]
    lines += [*_lines(lay, second.steps, numbers, 8, {}), f"        if {waits}:{LAST}", *last_lines]
    return lines + advance(lay, numbers)


def _lines(
    lay: Layout, steps: tuple[Step, ...], numbers: dict[str, str], indent: int,
    spelled: dict[str, str],
) -> Iterator[str]:  # fmt: skip
    for quantity in steps:
        assert not isinstance(quantity, Held)  # a form has its own memories
        if isinstance(quantity, Row):
            yield f"{' ' * indent}{quantity.name} = {load_row(lay, quantity)}"
            continue
        if isinstance(quantity.op, Given):
            continue
        source = statement(lay, quantity, spelled, apart=True)
        yield from wrapped(quantity.name, source, numbers.get(quantity.equation, ""), indent)


def advance(lay: Layout, numbers: dict[str, str]) -> list[str]:
    """Write the update of the states, and, where an interval of the document ends, its further
    updates."""
    plan = lay.plan
    moves = {s: n for s, n in plan.following.items() if s != n}
    phases = plan.phases()
    renamed = {n: s for s, n in moves.items()}
    lines = [] if not moves else [f"        {at_once(moves)}"]
    if phases.closings:
        done = "low + live" if lay.chunked else "chunk + 1"
        lines.append(f"        done = {done}")
    for closing in phases.closings:
        spelled = dict(renamed)
        spelled |= {n: plan.output if s == OUTPUT else s for n, s in closing.renamed.items()}
        lines.append(f"        if tiles.closes(position, done, {closing.every}, STEPS):")
        lines += _lines(lay, closing.statements, numbers, 12, spelled)
        ends = {plan.output if s == OUTPUT else s: spelled.get(n, n)
                for s, n in closing.moves.items()}  # fmt: skip
        lines.append(f"            {at_once(ends)}")
    return lines
