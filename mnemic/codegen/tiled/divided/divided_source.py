"""A divided plan as the source of its kernels."""

from collections.abc import Iterator

from mnemic.codegen.emit import wrapped
from mnemic.codegen.plan import Given
from mnemic.codegen.tiled.divided.two_kernels import Divided, Handed
from mnemic.codegen.tiled.kernel import (
    CUT,
    JIT,
    NUMBERS,
    advance,
    groups,
    load_row,
    load_state,
    opening,
    store_output,
    store_state,
    windowed,
)
from mnemic.codegen.tiled.layout import TALL, Held, Layout, Row, at, turned
from mnemic.codegen.tiled.schedule import Stage, Step, stages
from mnemic.codegen.tiled.statements import statement

PARALLEL = "What no state reaches, a chunk a program: arguments [B, R, H, ...] -> tiles [P, ...]."
SCAN = "The rest, chunk by chunk: arguments [B, R, H, ...], tiles [P, ...], states [M, ...]."

CHUNK = """\
        low = tl.maximum(first + (chunk - 1) * ROWS, 0)
        live = tl.minimum(first + chunk * ROWS, length) - low
        row = origin + tl.cast(low, tl.int64) * heads
        place = (slot + chunk) * heads + memory % heads
"""

EACH = "    for chunk in tl.range(tl.program_id(1), chunks, tl.num_programs(1), disable_licm=True):"
"""One turn where there are as many programs as chunks."""


def parallel(found: Divided, numbers: dict[str, str], name: str) -> str:
    """The kernel of what no carried state reaches."""
    lay = found.parallel
    pointers = [*_rows(lay), *(f"tile_{tile.name}" for tile in found.handed)]
    lines = [*_head(lay, pointers, name, PARALLEL), EACH, *CHUNK.splitlines(), *windowed(lay)]
    (stage,) = _given_on(lay, found.handed)
    told = {tile.name: tile for tile in found.handed}
    for step in stage.steps:
        lines += _lines(lay, (step,), numbers, 8, {})
        if step.name in told:
            lines.append(f"        {store_tile(lay, told[step.name])}")
    return "\n".join(lines) + "\n"


def scan(found: Divided, numbers: dict[str, str], name: str) -> str:
    """The kernel of the rest, from the first chunk to the last."""
    lay = found.scan
    pointers = [*_rows(lay), *(f"tile_{tile.name}" for tile in found.handed), "rows_out"]
    for state in lay.states:
        pointers += [f"start_{state.name}", f"end_{state.name}", f"kept_{state.name}"]
    lines = [*_head(lay, pointers, name, SCAN, "KEEP")]
    for state in lay.states:
        lines.append(f"    {state.name} = {load_state(state, f'start_{state.name}', 'memory')}")
    lines += ["    for chunk in tl.range(0, chunks):", *CHUNK.splitlines(), *windowed(lay)]
    lines.append("        if KEEP:")
    for state in lay.states:
        lines.append(f"            {store_state(state, f'kept_{state.name}', 'place', state.name)}")
    (stage,) = _scanned(lay)
    lines += _lines(lay, stage.steps, numbers, 8, {})
    lines += advance(lay, numbers)
    lines.append(f"        {store_output(lay)}")
    for state in lay.states:
        lines.append(f"    {store_state(state, f'end_{state.name}', 'memory', state.name)}")
    return "\n".join(lines) + "\n"


def _rows(lay: Layout) -> list[str]:
    return [f"rows_{row.name}" for row in lay.rows]


def _head(lay: Layout, pointers: list[str], name: str, doc: str, *flags: str) -> list[str]:
    """Parameters, which memory a program runs, and where its chunks lie."""
    sizes = [name for size in lay.channels for name in (size, f"B{size}")]
    sources = ["SOURCES"] if lay.sourced else []
    constants = [*sizes, "C", *sources, *CUT, *flags, "PRECISION", "REAL"]
    known = [*pointers, *NUMBERS, *(f"{constant}: tl.constexpr" for constant in constants)]
    return [JIT, f"def {name}(", *(f"    {part}," for part in known), "):",
            f'    """{doc}"""', *opening(lay)]  # fmt: skip


def _given_on(lay: Layout, handed: tuple[Handed, ...]) -> list[Stage]:
    """What the quantities that are handed on need: all is loaded once."""
    inside = [q for q in lay.plan.ordered() if not isinstance(q.op, Given)]
    return stages(lay, inside, (tuple(tile.name for tile in handed),), lay.given)


def _scanned(lay: Layout) -> list[Stage]:
    """What a chunk's output and its next states need: all is loaded once."""
    inside, ends = groups(lay)
    return stages(lay, inside, (tuple(end for group in ends for end in group),), lay.given)


def _lines(
    lay: Layout, steps: tuple[Step, ...], numbers: dict[str, str], indent: int,
    spelled: dict[str, str],
) -> Iterator[str]:  # fmt: skip
    for step in steps:
        if isinstance(step, Held):
            yield f"{' ' * indent}{step.name} = {load_tile(lay, step)}"
        elif isinstance(step, Row):
            yield f"{' ' * indent}{step.name} = {load_row(lay, step)}"
        elif not isinstance(step.op, Given):
            source = statement(lay, step, spelled)
            yield from wrapped(step.name, source, numbers.get(step.equation, ""), indent)


# -- tiles between kernels -------------------------------------------------------------------


def load_tile(lay: Layout, tile: Held) -> str:
    """A chunk's quantity that another kernel has stored."""
    pointer = f"tile_{tile.name}"
    if lies_as_memory(lay, tile):
        return load_state(tile, pointer, "place")
    if len(tile.sizes) == 1:
        (size,) = tile.sizes
        return f"tiles.load_vector({pointer}, place, {at(size)}, {size}, REAL)"
    rows, columns, width = _sides(tile)
    return f"tiles.load_tile({pointer}, place, {rows}, {columns}, {width}, REAL)"


def store_tile(lay: Layout, tile: Handed) -> str:
    """Store a chunk's quantity for other kernels."""
    pointer, held = f"tile_{tile.name}", Held(tile.name, tile.sizes)
    if lies_as_memory(lay, held):
        return store_state(held, pointer, "place", tile.name)
    if len(tile.sizes) == 1:
        (size,) = tile.sizes
        return f"tiles.store_vector({pointer}, place, {at(size)}, {size}, {tile.name})"
    rows, columns, width = _sides(held)
    return f"tiles.store_tile({pointer}, place, {rows}, {columns}, {width}, {tile.name})"


def lies_as_memory(lay: Layout, tile: Held) -> bool:
    """Whether it is a number or lies as a memory does."""
    return not tile.sizes or turned(lay.plan.axes(tile.name))


def _sides(tile: Held) -> tuple[str, str, str]:
    first, second = tile.sizes
    assert first in TALL
    return at(first), at(second), second
