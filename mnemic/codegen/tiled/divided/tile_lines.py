"""What the kernels of a divided plan have in common: heads, lines of a chunk, tiles in between."""

from collections.abc import Iterable, Iterator

from mnemic.codegen.emit import wrapped
from mnemic.codegen.plan import Given
from mnemic.codegen.tiled.backward import cited
from mnemic.codegen.tiled.divided.two_kernels import Handed
from mnemic.codegen.tiled.kernel import (
    CUT,
    JIT,
    NUMBERS,
    load_row,
    load_state,
    opening,
    store_state,
)
from mnemic.codegen.tiled.layout import TALL, Held, Layout, Row, at, turned
from mnemic.codegen.tiled.schedule import Step
from mnemic.codegen.tiled.statements import statement

CHUNK = """\
        low = tl.maximum(first + (chunk - 1) * ROWS, 0)
        live = tl.minimum(first + chunk * ROWS, length) - low
        row = origin + tl.cast(low, tl.int64) * heads
        place = (slot + chunk) * heads + memory % heads
"""

EACH = "    for chunk in tl.range(tl.program_id(1), chunks, tl.num_programs(1), disable_licm=True):"
"""The loop over chunks; it has one turn where there are as many programs as chunks."""

Stores = dict[str, list[str]]
"""Lines that store each quantity, where it is computed first."""


def head(
    lay: Layout, pointers: list[str], name: str, doc: str, *flags: str, along: tuple[str, ...] = ()
) -> list[str]:  # fmt: skip
    """Write parameters, which memory a program runs, and where its chunks lie; of the sizes
    ``along`` it has all."""
    sizes = [name for size in lay.channels for name in (size, f"B{size}")]
    sources = ["SOURCES"] if lay.sourced else []
    constants = [*sizes, "C", *sources, *CUT, *flags, "PRECISION", "REAL"]
    known = [*pointers, *NUMBERS, *(f"{constant}: tl.constexpr" for constant in constants)]
    return [JIT, f"def {name}(", *(f"    {part}," for part in known), "):",
            f'    """{doc}"""', *opening(lay, along)]  # fmt: skip


def compute_lines(
    lay: Layout, steps: Iterable[Step], stores: Stores, numbers: dict[str, str], indent: int,
    added: frozenset[str] = frozenset(),
) -> Iterator[str]:  # fmt: skip
    """Load, compute, and store what is told; what is ``added`` goes on with a sum."""
    for step in steps:
        if isinstance(step, Row):
            yield f"{' ' * indent}{step.name} = {load_row(lay, step)}"
        elif isinstance(step, Held):
            yield f"{' ' * indent}{step.name} = {load_tile(lay, step)}"
        elif not isinstance(step.op, Given):
            source, named = statement(lay, step, {}), step.name
            if step.name in added:
                source = f"{named} + {source}"
            yield from wrapped(named, source, cited(numbers, step.equation), indent)
            if step.name in added:
                continue
        yield from (f"{' ' * indent}{line}" for line in stores.pop(step.name, ()))


def load_tile(lay: Layout, tile: Held) -> str:
    """Load a chunk's quantity that another kernel has stored."""
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
    """Return whether a tile is a number or lies as a memory does."""
    return not tile.sizes or turned(lay.plan.axes(tile.name))


def _sides(tile: Held) -> tuple[str, str, str]:
    first, second = tile.sizes
    assert first in TALL
    return at(first), at(second), second
