"""Which tiles of a kernel are alive at once: what the model of its cut counts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from math import prod

from mnemic.codegen.ops import OPERATIONS
from mnemic.codegen.ops.operation import Tile
from mnemic.codegen.ops.pulled import BACK
from mnemic.codegen.plan import Call, Map, Quantity
from mnemic.codegen.tiled import roots
from mnemic.codegen.tiled.layout import ROWS, SOURCES, Held, Layout, Row
from mnemic.codegen.tiled.schedule import Stage
from mnemic.codegen.tiled.swept.sections import Again, Store, Sum
from mnemic.codegen.tiled.swept.sweeps import Sweeps
from mnemic.codegen.tiled.windows import WINDOW
from mnemic.compiler.implicit import roots_of

Shape = tuple[str, ...]
Tiles = tuple[tuple[Shape, int], ...]
"""Shapes by the names of their sizes (``a|b``: the lesser), and how many tiles of each."""

TALL, WIDE = (16, 64), (64, 128)
"""Rows and channels between which the fullest moments are looked for."""

SEARCHED = 3
"""Tiles that a search for roots holds beside its argument and result: a bracket, and a step."""


def fullest(lay: Layout, stages: Iterable[Stage]) -> tuple[Tiles, ...]:
    """Return the moments of a chunk at which the most entries are alive, for some sizes or other.

    The ends of a stage are read (stored, or put in place) when it is done.
    """
    return _for_sizes(lay, [*_moments(lay, list(stages))])


def fullest_swept(*sweeps: Sweeps) -> tuple[Tiles, ...]:
    """Return the fullest moments of a chunk that goes along axes block by block; of the memories of
    each shape also the moment with the most, as other axes may be much longer than these sizes."""
    lay = sweeps[0].lay
    moments = [tiles for found in sweeps for tiles in _swept(found)]
    shapes = dict.fromkeys(tuple(sorted(s.sizes)) for s in (*lay.states, *lay.given))
    held = (max(moments, key=lambda tiles: dict(tiles).get(shape, 0)) for shape in shapes)
    return tuple(dict.fromkeys((*_for_sizes(lay, moments), *held)))


def _for_sizes(lay: Layout, moments: list[Tiles]) -> tuple[Tiles, ...]:
    """Return the fullest of some moments, for each number of rows and of channels that is tried."""
    slots = {row.sizes[0]: min(TALL) for row in lay.rows if row.view == WINDOW}
    found: dict[Tiles, None] = {}
    for rows, channels in product(TALL, WIDE):
        sizes = {ROWS: rows, SOURCES: 2 * rows, **slots}
        found[max(moments, key=lambda tiles: _entries(tiles, sizes, channels))] = None
    return tuple(found)


def _moments(lay: Layout, stages: list[Stage]) -> Iterable[Tiles]:
    """Yield what is alive at each step, last to first: read there or later, and its own result."""
    moving = {s for s, n in lay.plan.following.items() if s != n}
    alive = {state.name for state in lay.states} - moving
    for stage in reversed(stages):
        alive |= set(stage.ends)
        yield _counted(lay, alive, None)
        for step in reversed(stage.steps):
            if isinstance(step, Held):  # held from the start, unless a cut is lean
                continue
            reads = set() if isinstance(step, Row) else set(step.reads())
            yield _counted(lay, alive | reads | {step.name}, step)
            alive = (alive - {step.name}) | reads


def _swept(sweeps: Sweeps) -> Iterable[Tiles]:
    """Yield what is alive at each step of the sections, from the last to the first.

    What a loop sums, and what it reads from outside, is alive through all its blocks.
    """
    lay = sweeps.lay
    alive = {name for name in sweeps.last if not sweeps.axis(name)}
    ending = {name for name in sweeps.last if sweeps.axis(name)}  # stored when it is known
    for section in reversed(sweeps.sections()):
        for loop in reversed(section.loops):
            around = alive | {q.name for q in loop.sums} | set(sweeps.outside(loop))
            block = {name for name in ending if loop.after({name}) == len(loop.steps)}
            yield _counted(lay, around | block, None)
            for step in reversed(loop.steps):
                if isinstance(step, Store | Again):
                    continue
                quantity = step.quantity if isinstance(step, Sum) else step
                reads = set(quantity.reads()) if isinstance(quantity, Quantity) else set()
                yield _counted(
                    lay, around | block | reads | {quantity.name},
                    quantity if isinstance(quantity, Quantity) else None,
                )  # fmt: skip
                block = (block - {quantity.name}) | {r for r in reads if sweeps.axis(r)}
            alive = around - {q.name for q in loop.sums}
        alive |= set(section.ends)
        for line in reversed(section.steps):
            if isinstance(line, Store):
                alive.add(line.scratch.name)
                continue
            reads = set(line.reads()) if isinstance(line, Quantity) else set()
            reads = {read for read in reads if not sweeps.axis(read)}
            yield _counted(lay, alive | reads | {line.name}, None)
            alive = (alive - {line.name}) | reads


def _counted(lay: Layout, names: set[str], step: Row | Quantity | None) -> Tiles:
    found = Counter(_shape(lay, name) for name in names)
    if isinstance(step, Quantity) and _searches(step):
        dual = step.op.arguments[0] if isinstance(step.op, Call) else step.name
        found[_shape(lay, dual)] += SEARCHED
    if isinstance(step, Quantity) and isinstance(step.op, Call):
        found.update(_held(_shape(lay, step.name), OPERATIONS[step.op.function].tile))
    return tuple(sorted((shape, count) for shape, count in found.items() if shape and count))


def _held(shape: Shape, tile: Tile | None) -> dict[Shape, int]:
    """Count what a function of matrices holds beside arguments and result of this shape."""
    whole, lesser = tile.holds if tile else (0, 0)
    return {shape: whole, ("|".join(shape),) * 2: lesser}


def _shape(lay: Layout, name: str) -> Shape:
    return tuple(sorted(size or ROWS for size in lay.sizes(name)))


def _searches(quantity: Quantity) -> bool:
    """Return whether a quantity takes a search for a root, entry by entry."""
    op = quantity.op
    if isinstance(op, Call):
        of = dict(op.options)["of"] if op.function == BACK else op.function
        return str(of).startswith(roots.FUNCTIONS)
    return isinstance(op, Map) and bool(roots_of(op.expr))


def _entries(tiles: Tiles, sizes: Mapping[str, int], channels: int) -> int:
    return sum(n * prod(sizes.get(size, channels) for size in shape) for shape, n in tiles)
