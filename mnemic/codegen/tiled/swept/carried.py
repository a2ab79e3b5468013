"""Rows without a swept axis that later sweeps need: they are stored, and loaded where they are
read.

A chunk that sweeps over its memories many times makes a few rows in each sweep (a prediction, an
error, a part of a gradient), and later sweeps read them. Kept in registers all that time, they
would leave none for the blocks; next to the memories that a sweep loads, loading them costs little.
"""

from collections.abc import Iterator
from dataclasses import replace

from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled.layout import TALL
from mnemic.codegen.tiled.swept.along_axis import rest
from mnemic.codegen.tiled.swept.sections import Load, Scratch, Section, Store
from mnemic.codegen.tiled.swept.sweep_counts import Levels


def carried(levels: Levels, sections: list[Section]) -> list[Section]:
    """Return the sections of a chunk, each of which loads the rows that it reads of earlier ones.

    What a section makes, or the loop before it sums, it holds itself. A sum with an addend stays
    in registers until the addend is known.
    """
    made: dict[str, int] = {}
    for number, section in enumerate(sections):
        made |= {name: number for name in _computed(section) if name not in made}
        made |= {name: number + 1 for name in _summed(section)}
    rows = {
        name: Scratch(name, levels.lay.sizes(name)[-1])
        for number, section in enumerate(sections) for name in _read(levels, section)
        if made.get(name, number) < number and _stored(levels, name)
    }  # fmt: skip
    known: set[str] = set()
    found = []
    before: list[str] = []
    for section in sections:
        stores = [Store(rows[name]) for name in before if name in rows]
        missing = known - {*_computed(section), *before}
        steps = [*stores, *_carrying(levels, section, rows, missing, known)]
        known |= {step.scratch.name for step in steps if isinstance(step, Store)}
        before = _summed(section)
        found.append(replace(section, steps=tuple(steps)))
    return found


def _carrying(
    levels: Levels, section: Section, rows: dict[str, Scratch], missing: set[str], known: set[str]
) -> Iterator[Load | Quantity | Store]:
    """Yield the steps before a sweep, with loads of what is ``missing`` and stores of what is not
    yet ``known``."""
    left = set(missing)
    for step in section.steps:
        reads = step.reads() if isinstance(step, Quantity) else ()
        yield from (rows[read] for read in dict.fromkeys(reads) if read in left)
        left -= set(reads)
        yield step
        if isinstance(step, Quantity) and step.name in rows and step.name not in known:
            yield Store(rows[step.name])
    yield from (rows[name] for name in dict.fromkeys(_behind(levels, section)) if name in left)


def _computed(section: Section) -> list[str]:
    """Name what the steps before a sweep make."""
    return [step.name for step in section.steps if isinstance(step, Quantity)]


def _summed(section: Section) -> list[str]:
    """Name what is known when a section's loops are through."""
    return [q.name for loop in section.loops for q in loop.sums if not rest(q)]


def _read(levels: Levels, section: Section) -> Iterator[str]:
    """Yield what a section reads that it does not make."""
    own = set(_computed(section))
    reads = [n for step in section.steps if isinstance(step, Quantity) for n in step.reads()]
    yield from (name for name in (*reads, *_behind(levels, section)) if name not in own)


def _behind(levels: Levels, section: Section) -> tuple[str, ...]:
    """Name what is read behind the steps before a sweep: ends, and what loops read from outside."""
    return (*section.ends, *(name for loop in section.loops for name in levels.outside(loop)))


def _stored(levels: Levels, name: str) -> bool:
    """Return whether a quantity is a chunk's rows, or a vector, that no sweep goes along."""
    sizes = levels.lay.sizes(name)
    known = {*TALL, *levels.lay.channels} - {*levels.along}
    return set(sizes) <= known and (len(sizes) == 1 or (len(sizes) == 2 and sizes[0] in TALL))
