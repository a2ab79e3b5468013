"""A divided gradient as the source of its kernels."""

from collections.abc import Iterator
from dataclasses import replace

from mnemic.codegen.emit import at_once
from mnemic.codegen.plan import Given, Quantity
from mnemic.codegen.tiled.backward import closing, store_gradient
from mnemic.codegen.tiled.divided.gradient_parts import GradientParts
from mnemic.codegen.tiled.divided.sums_kernel import overlapping, sums_kernel
from mnemic.codegen.tiled.divided.tile_lines import (
    CHUNK,
    EACH,
    Stores,
    compute_lines,
    head,
    lies_as_memory,
    store_tile,
)
from mnemic.codegen.tiled.divided.two_kernels import Handed
from mnemic.codegen.tiled.divided.value_blocks import blocks
from mnemic.codegen.tiled.kernel import load_state, overlaps, store_state, windowed
from mnemic.codegen.tiled.layout import TALL, Held, Layout, Row
from mnemic.codegen.tiled.schedule import stages

PARALLEL = "What no gradient of a state reaches, a chunk a program: arguments -> tiles [P, ...]."
SCAN = "The gradients of states, from the last chunk to the first: arguments, tiles -> tiles."
REST = "The gradients of arguments, a chunk a program: arguments, tiles -> gradients."
OVERLAPPING = "The gradients of arguments; of rows that windows share each chunk's, tiles [P, ...]."

BACK = """\
    part = tl.program_id(1).to(tl.int64)
    own = memory + part * tl.num_programs(0)
    parts = tl.num_programs(1)
"""

LAST_FIRST = """\
    for done in tl.range(0, chunks):
        chunk = chunks - 1 - done
"""

VALUES = "        for part in tl.range(0, ({0} + B{0} - 1) // B{0}):"
"""The loop over blocks of values, which has one turn where a block has all of them."""


def kernels(found: GradientParts, numbers: dict[str, str], name: str) -> list[str]:
    """Write a divided gradient's kernels, a source each."""
    texts = [_scan(found, numbers, f"{name}_scan"), _rest(found, numbers, f"{name}_rest")]
    if rows := overlapping(found.whole, found.back.gradients):
        texts.append(sums_kernel(found.whole, rows, f"{name}_sums"))
    if found.parallel is None:
        return texts
    return [_parallel(found, found.parallel, numbers, f"{name}_parallel"), *texts]


def rows_of(lay: Layout) -> tuple[str, ...]:
    """Name the arguments by row that a kernel loads."""
    return tuple(row.name for row in lay.rows)


def loads_of(lay: Layout) -> tuple[str, ...]:
    """Name the tiles that a kernel loads."""
    return tuple(tile.name for tile in lay.given)


def _parallel(
    found: GradientParts, lay: Layout, numbers: dict[str, str], name: str
) -> str:  # fmt: skip
    stores = {tile.name: [store_tile(lay, tile)] for tile in found.handed}
    pointers = [*_pointers(lay), *(f"tile_{tile.name}" for tile in found.handed)]
    lines = [*head(found.whole, pointers, name, PARALLEL, along=_along(found.whole)), EACH]
    lines += _chunk(lay)
    return "\n".join([*lines, *_in_blocks(found, lay, stores, numbers)]) + "\n"


def _rest(found: GradientParts, numbers: dict[str, str], name: str) -> str:
    lay, whole, doc = found.rest, found.whole, REST
    own = {row.name: row for row in whole.rows}
    stores: dict[str, list[str]] = {}
    for argument, end in found.back.gradients.items():
        line = _store_gradient(lay, own[argument], end)
        stores.setdefault(end, []).append(line)
        doc = OVERLAPPING if overlaps(own[argument]) else doc
    pointers = [*_pointers(lay), *(f"grad_{argument}" for argument in found.back.gradients)]
    lines = [*head(whole, pointers, name, doc, along=_along(whole)), EACH]
    lines += _chunk(lay)
    return "\n".join([*lines, *_in_blocks(found, lay, stores, numbers)]) + "\n"


def _scan(found: GradientParts, numbers: dict[str, str], name: str) -> str:
    lay = found.scan
    pointers = _pointers(lay)
    for state in lay.states:
        pointers += [f"start_{state.name}", f"end_{state.name}"]
    pointers += [f"tile_{tile.name}" for tile in found.scanned]
    lines = [*head(found.whole, pointers, name, SCAN), *BACK.splitlines()]
    for state in lay.states:
        start = load_state(state, f"start_{state.name}", _number(lay, state.sizes))
        lines.append(f"    {state.name} = {start}")
    lines += [*LAST_FIRST.splitlines(), *_chunk(lay)]
    stores = {tile.name: [_store_part(lay, tile)] for tile in found.scanned}
    carried = {state.name for state in lay.states}
    lines += [f"        {line}" for n in stores if n in carried for line in stores[n]]
    moves = {s: n for s, n in lay.plan.following.items() if s != n}
    ends = (*(n for n in stores if n not in carried), *moves.values())
    (stage,) = stages(lay, _inside(lay), (ends,), lay.given)
    lines += compute_lines(lay, stage.steps, stores, numbers, 8)
    lines += [f"        {at_once(moves)}"] if moves else []
    for state in lay.states:
        end = store_state(state, f"end_{state.name}", _number(lay, state.sizes), state.name)
        lines.append(f"    {end}")
    return "\n".join(lines) + "\n"


# -- what kernels have in common ---------------------------------------------------------------


def _pointers(lay: Layout) -> list[str]:
    return [*(f"rows_{name}" for name in rows_of(lay)), *(f"tile_{n}" for n in loads_of(lay))]


def _chunk(lay: Layout) -> list[str]:
    """Write where a chunk lies, what its windows read, and which intervals end with it."""
    return [*CHUNK.splitlines(), *windowed(lay), *(f"        {line}" for line in closing(lay))]


def _store_gradient(lay: Layout, row: Row, value: str) -> str:
    """Store a chunk's gradient of an argument; of rows that windows share a tile of its own, since
    other chunks have a part in them as well."""
    if not overlaps(row):
        return store_gradient(replace(lay, split=""), row, value)
    (size,) = row.sizes
    return f"tiles.store_tile(grad_{row.name}, place, at_SOURCES, at_{size}, {size}, {value})"


def _along(lay: Layout) -> tuple[str, ...]:
    """Return the size of values that may be cut: a program has all of them, block by block."""
    return (lay.split,) if lay.split else ()


def _number(lay: Layout, sizes: tuple[str, ...]) -> str:
    """Return a memory's number; each block of values has its own part of what has no values."""
    return "memory" if not lay.split or lay.split in sizes else "own"


def _store_part(lay: Layout, tile: Handed) -> str:
    """Write the store of a chunk's tile; one without an axis of values is stored once by each block
    of values, as a part."""
    line = store_tile(lay, tile)
    if _number(lay, tile.sizes) == "memory":
        return line
    return line.replace(", place,", ", place * parts + part,", 1)


def _inside(lay: Layout) -> list[Quantity]:
    return [q for q in lay.plan.ordered() if not isinstance(q.op, Given)]


def _in_blocks(
    found: GradientParts, lay: Layout, stores: Stores, numbers: dict[str, str]
) -> Iterator[str]:  # fmt: skip
    """Yield the lines of a chunk whose values a program takes block by block."""
    ordered = blocks(lay, found.values, _inside(lay), tuple(stores))
    yield from compute_lines(lay, ordered.before, stores, numbers, 8)
    if ordered.inside:
        sums = [s for s in ordered.inside if isinstance(s, Quantity) and found.values.begins(s)]
        yield from (f"        {q.name} = {_zeros(lay, q.name)}" for q in sums)
        size = lay.split
        yield VALUES.format(size)
        yield f"            at_{size} = part * B{size} + tl.arange(0, B{size})"
        yield f"            in_{size} = at_{size} < {size}"
        added = frozenset(q.name for q in sums)
        yield from compute_lines(lay, ordered.inside, stores, numbers, 12, added)
        stored = [n for n in stores if n in added]
        yield from (f"        {line}" for n in stored for line in stores.pop(n))
    yield from compute_lines(lay, ordered.behind, stores, numbers, 8)


def _zeros(lay: Layout, name: str) -> str:
    """Write the zeros with which a sum over blocks of values begins."""
    sizes = lay.sizes(name)
    sizes = sizes[::-1] if lies_as_memory(lay, Held(name, sizes)) else sizes
    shape = ", ".join(size if size in TALL else f"B{size}" if size else "C" for size in sizes)
    return f"tl.zeros(({shape}{',' * (len(sizes) == 1)}), REAL)"
