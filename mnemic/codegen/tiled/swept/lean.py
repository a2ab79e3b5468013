"""The lean cut of a gradient that loops over blocks of its memories: fewer rows stay in registers.

A loop multiplies its blocks by rows of channels that have no swept axis. The compiler loads and
rounds them once, before the loop, and each warp holds all of them; in a lean cut each block reloads
those that lie in device memory, which next to its memories is little. Rows stored for this purpose
are visible to all threads: there is a barrier after a section's stores, and at a chunk's end.
"""

from collections.abc import Iterator
from dataclasses import replace

from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled.layout import TALL, Layout, Row
from mnemic.codegen.tiled.swept.sections import Again, Loop, Scratch, Section, Step, Store, Sum
from mnemic.codegen.tiled.swept.sweep_counts import Levels


def leanly(levels: Levels, sections: list[Section]) -> list[Section]:
    """Return a chunk's sections, whose loops load in a lean cut what they read of earlier steps."""
    return [
        replace(section, loops=tuple(_loading(levels, section, loop) for loop in section.loops))
        for section in sections
    ]


def _loading(levels: Levels, section: Section, loop: Loop) -> Loop:
    """Add loads to a loop that goes through its blocks once; a search for a root stays as it is."""
    return loop if loop.search else replace(loop, steps=tuple(_steps(levels, section, loop)))


def _steps(levels: Levels, section: Section, loop: Loop) -> Iterator[Step]:
    left = _known(levels.lay, section)
    for step in loop.steps:
        if isinstance(step, Sum | Quantity):
            for read in levels.outside(replace(loop, steps=(step,))):
                if read in left:
                    yield Again(left.pop(read))
        yield step


def _known(lay: Layout, section: Section) -> dict[str, Row | Scratch]:
    """Return the rows of channels that a section loads or makes and that lie in device memory."""
    found: dict[str, Row | Scratch] = {}
    for step in section.steps:
        load = step.scratch if isinstance(step, Store) else step
        if isinstance(load, Row | Scratch) and _wide(lay.sizes(load.name)):
            found[load.name] = load
    return found


def _wide(sizes: tuple[str, ...]) -> bool:
    return len(sizes) == 2 and sizes[0] in TALL and sizes[1] not in TALL
