"""The source of a Triton kernel for a plan over kept pairs, and of its gradient's."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mnemic.codegen.plan import Call
from mnemic.codegen.streamed.body import Body
from mnemic.codegen.streamed.lines import (
    append,
    grow,
    load_block,
    load_handed,
    same,
    store_block,
    store_handed,
)
from mnemic.codegen.streamed.pair_layout import Growth, Streams
from mnemic.codegen.streamed.pair_passes import Passes
from mnemic.codegen.streamed.stages import Stages
from mnemic.codegen.streamed.swept_chunk import OPERANDS, WHOLE, Around, Room, Swept, Tiles
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.kernel import load_state, store_row, store_state, store_view, windowed
from mnemic.codegen.tiled.layout import CLOSES, Held, Row
from mnemic.codegen.tiled.swept import loop
from mnemic.codegen.tiled.windows import ROWS, SHARED

CHUNK = """\
low = tl.maximum(first + (c - 1) * ROWS, 0)
live = tl.minimum(first + c * ROWS, length) - low
behind = before + low
row = origin + tl.cast(low, tl.int64) * heads
"""

TILE = "tile = memory * chunks + c"
"""Where what one kernel stores of a chunk for another lies."""

# what does not change from chunk to chunk is made anew in each: registers are dearer
FORWARD = "    for c in tl.range(0, chunks, disable_licm=True):"
BACKWARD = "    for i in tl.range(0, chunks, disable_licm=True):\n        c = chunks - 1 - i"
ALONE = "    c = chunks - 1 - tl.program_id(1)  # those with most pairs behind them first"
ONE = "    c = 0"

# the same where a launch has a part of the chunks
PART_FORWARD = "    for c in tl.range(part_from, part_to, disable_licm=True):"
PART_BACKWARD = (
    "    for i in tl.range(part_from, part_to, disable_licm=True):\n"
    "        c = part_to - 1 + part_from - i"
)
PART_ALONE = "    c = part_from + tl.program_id(1)"
SINCE = "since = before + tl.maximum(first + (part_from - 1) * ROWS, 0)"
"""How many pairs there are before the rows of a launch's part of the chunks."""
PART_TO = "part_to = tl.minimum(part_from + PART, chunks)"
"""The chunk behind the last of a launch's part."""


@dataclass(frozen=True)
class Shape:
    """What kind of kernel to write: its name, its docstring, and whether each chunk has its own
    program."""

    name: str
    doc: str
    alone: bool
    span: int = 0
    """The number of pairs that a row's window reaches back; 0 if it sees all."""
    one: bool = False
    """Whether a launch has one chunk."""
    along: str = ""
    """The size of the axis along which memories are looped over by blocks; empty if they are
    whole."""
    part: str = ""
    """The pairs that a launch over a part of the chunks reads: those ``before`` their rows, or
    those ``within`` them."""

    @property
    def first_block(self) -> str:
        """The first block of pairs that any row sees."""
        return f"tl.maximum(behind - {self.span - 1}, 0) // BN" if self.span else "0"

    @property
    def indent(self) -> int:
        """The indentation of a chunk's statements."""
        return 4 if self.alone or self.one else 8


@dataclass(frozen=True)
class Written:
    """A kernel's source, and how many tiles of rows and of a block live in it at once."""

    text: str
    alive: tuple[int, int]
    room: tuple[Tiles, Tiles] = ((0, 0), (0, 0))
    """How many tiles of rows along an axis it keeps in memory, as they are and as operands."""


def forward(
    found: Streams, numbers: dict[str, str], shape: Shape, known: frozenset[str],
    begun: tuple[Held, ...] = (),
) -> Written:  # fmt: skip
    """Write the kernel of a chunk form whose pairs lie in memory.

    All pairs of the states ``known`` are there from the start; the sums over pairs in ``begun`` go
    on from what another kernel has stored. Memories beside the pairs lie where the final ones
    belong, and are loaded where they are read.
    """
    lay, plan = found.lay, found.plan
    ends: dict[str, list[str]] = {}
    if plan.output:
        out = store_row(lay, "rows_out", found.say(plan.output), (lay.value,))
        ends[plan.output] = [out]
    late: dict[str, list[str]] = {}
    fills: list[str] = []
    made = [held for held in found.kept if held.name not in known]
    for held in made:
        growth = found.growth[held.name]
        if shape.along in held.sizes and growth.number is not None:
            fills.append(_filled(held, growth.number))
        else:
            _put(found, held, growth, late if growth.tail else ends)
    for state in lay.states:
        name = plan.following.get(state.name, state.name)
        if name != state.name:
            text = store_state(state, f"end_{state.name}", "memory", found.say(name))
            late.setdefault(name, []).append(text)
    rewrites = {h.name: found.growth[h.name].kept for h in made
                if found.growth[h.name].kept != h.name}  # fmt: skip
    tails = any(found.growth[held.name].tail for held in made)
    stored = Stored(ends, rewrites, late, fills, tails=tails)
    kept = Handed(begins={held.name: load_handed(held) for held in begun})
    room, alive, lines = _body(found, numbers, shape, stored, lasting=True, kept=kept)
    extra = ["rows_out"] * bool(plan.output) + [f"handed_{held.name}" for held in begun]
    whole = head(found, shape, extra, room=room)
    for state in lay.states:
        text = load_state(state, f"start_{state.name}", "memory")
        text = store_state(state, f"end_{state.name}", "memory", text)
        whole += _each(state, shape, text, 4)
    whole += ["    tl.debug_barrier()"] * bool(lay.states)
    whole += chunk(found, PART_FORWARD if shape.part else FORWARD, shape)
    whole += [f"{' ' * shape.indent}{TILE}"] * bool(begun)
    whole += [*lines, *_closings(found, shape)]
    if made:
        whole.append(f"{' ' * shape.indent}tl.debug_barrier()")
    return Written("\n".join(whole) + "\n", alive, _tiles(room))


def backward(
    found: Streams, gradients: dict[str, str], numbers: dict[str, str], shape: Shape,
    handed: tuple[Held, ...] = (), given: tuple[Held, ...] = (),
) -> Written:  # fmt: skip
    """Write the kernel of a form's gradient.

    One program goes through the chunks from the last to the first, with the gradients of pairs in
    memory; or each chunk has a program, which stores the quantities ``handed`` to the kernel of the
    pairs' gradient. ``given`` are quantities that other kernels have stored for this one.

    Where there are memories beside the pairs, each is loaded where it is read, and so is its
    gradient; those before the chunk are stored as soon as they are known.
    """
    lay, plan = found.lay, found.plan
    rows = {row.name: row for row in (*lay.rows, *(own for own, _ in found.own))}
    ends: dict[str, list[str]] = {}
    for name, gradient in gradients.items():
        text = _store(found, rows[name], f"grad_{name}", found.say(gradient))
        ends.setdefault(gradient, []).append(text)
    for held in handed:
        ends.setdefault(held.name, []).append(store_handed(held, found.say(held.name)))
    for state in lay.states:
        before = plan.following[state.name]
        text = store_state(state, f"end_{state.name}", "memory", found.say(before))
        ends.setdefault(before, []).append(text)
    rewrites = {h.name: plan.following[h.name] for h in found.kept
                if not _stays(found, plan.following[h.name])}  # fmt: skip
    kept = Handed(carried={held.name: load_handed(held) for held in given})
    stored = Stored(ends, rewrites)
    room, alive, lines = _body(found, numbers, shape, stored, lasting=False, kept=kept)
    extra = [f"grad_{name}" for name in gradients]
    extra += [f"handed_{held.name}" for held in (*given, *handed)]
    whole = head(found, shape, extra, room=room)
    whole += chunk(found, PART_BACKWARD if shape.part else BACKWARD, shape)
    whole += [f"{' ' * shape.indent}{TILE}"] * bool(handed or given)
    whole += [*lines, *([] if shape.alone else [f"{' ' * shape.indent}tl.debug_barrier()"])]
    return Written("\n".join(whole) + "\n", alive, _tiles(room))


@dataclass(frozen=True)
class Stored:
    """What a chunk stores: as soon as it is known; in place of pairs' entries; after all reads of
    what it replaces; and what no statement computes."""

    ends: dict[str, list[str]]
    rewrites: dict[str, str]
    late: dict[str, list[str]] = field(default_factory=dict)
    fills: list[str] = field(default_factory=list)
    tails: bool = False
    """Whether a chunk adds to the last pairs before it."""


@dataclass(frozen=True)
class Handed:
    """What other kernels have stored of a chunk, and how it is loaded: quantities, and the partial
    sums with which sums over pairs begin."""

    carried: dict[str, str] = field(default_factory=dict)
    begins: dict[str, str] = field(default_factory=dict)


def _body(
    found: Streams, numbers: dict[str, str], shape: Shape, stored: Stored, *, lasting: bool,
    kept: Handed,
) -> tuple[Room | None, tuple[int, int], list[str]]:  # fmt: skip
    """Return the scratch memory for a chunk's rows along an axis, the tiles alive at once, and its
    lines."""
    passes, loads = Passes(found), _loads(found, "end" if lasting else "start")
    passes.check()
    if not shape.along:
        body = Body(
            found, passes, numbers, shape.first_block, shape.indent, part=shape.part,
            lasting=lasting, loads=loads, carried=kept.carried, begins=kept.begins,
        )  # fmt: skip
        lines = [*body.lines(stored.ends.items(), stored.rewrites, stored.late)]
        return None, body.alive, lines
    ends: list[str] = []
    swept: list[str] = []
    for name in (*stored.ends, *stored.late):
        (swept if shape.along in found.lay.sizes(name) else ends).append(name)
    stages = Stages(
        found, passes, shape.along, tuple(ends), tuple(swept), tuple(stored.rewrites.values()),
        stored.tails, exact=lasting, apart=not lasting,
    )  # fmt: skip
    stages.check()
    around = Around(
        found, passes, numbers, shape.first_block, shape.indent, lasting=lasting, loads=loads,
        stages=stages, room=Room(stages),
    )  # fmt: skip
    lines = [*Swept(around, stored.fills).lines(stored.ends, stored.rewrites, stored.late)]
    return around.room, around.alive, lines


def _tiles(room: Room | None) -> tuple[Tiles, Tiles]:
    return (room.tiles(WHOLE), room.tiles(OPERANDS)) if room else ((0, 0), (0, 0))


def _each(state: Held, shape: Shape, text: str, indent: int) -> list[str]:
    """Write a line for a memory, inside a loop over its blocks if the kernel has one."""
    if not shape.along or shape.along not in state.sizes:
        return [f"{' ' * indent}{text}"]
    return [*loop(shape.along, indent), f"{' ' * indent}    {text}"]


def _loads(found: Streams, where: str) -> dict[str, str]:
    """Return loads of memories by name; ``where`` carried ones lie: at their "start" or "end"."""
    held = {s.name: f"kept_{s.name}" for s in found.begun}
    held |= {s.name: f"{where}_{s.name}" for s in found.lay.states}
    places = {s.name: s for s in (*found.begun, *found.lay.states)}
    return {n: load_state(places[n], pointer, "memory") for n, pointer in held.items()}


def _store(found: Streams, row: Row, pointer: str, value: str) -> str:
    """Write the store of a gradient of an argument's rows."""
    if row.view == ROWS:
        return store_row(found.lay, pointer, value, row.sizes)
    return store_view(found.lay, row, pointer, value)


def parameters(
    found: Streams, extra: list[str], room: Room | None, shape: Shape
) -> list[str]:  # fmt: skip
    """Return the kernel's parameters: pointers, numbers, constants."""
    extra = [*extra, *(room.places if room else ())]
    pointers = [f"rows_{row.name}" for row in found.lay.rows]
    pointers += [f"kept_{held.name}" for held in (*found.read, *found.kept, *found.begun)]
    for state in found.lay.states:
        pointers += [f"start_{state.name}", f"end_{state.name}"]
    numbers = ["total", "length", "heads", "position", "first", "chunks", "before", "room"]
    numbers += ["part_from"] * bool(shape.part)
    sizes = [name for size in sizes_of(found) for name in (size, f"B{size}")]
    sources = ["SOURCES"] if found.lay.sourced else []
    part = ["PART"] * bool(shape.part)
    constants = [*sizes, "C", *sources, "BN", "ROWS", *part, "STEPS", "PRECISION", "REAL"]
    return [*pointers, *extra, *numbers, *(f"{name}: tl.constexpr" for name in constants)]


def sizes_of(found: Streams) -> tuple[str, ...]:
    """Return the sizes of channels, each once."""
    sizes = [s for row in found.lay.rows for s in row.sizes]
    for held in (*found.read, *found.kept, *found.begun, *found.lay.states):
        sizes += held.sizes
    return tuple(dict.fromkeys(sizes))


def head(
    found: Streams, shape: Shape, extra: list[str], *, room: Room | None
) -> list[str]:  # fmt: skip
    """Write the kernel down to what is the same for all of a program's chunks."""
    jit = "@triton.jit" + '(do_not_specialize=["part_from"])' * bool(shape.part)
    lines = [jit, f"def {shape.name}("]
    lines += [f"    {part}," for part in parameters(found, extra, room, shape)]
    lines += ["):", f'    """{shape.doc}"""']
    lines += [
        "    memory = tl.program_id(0).to(tl.int64)",
        "    origin = (memory // heads) * total * heads + memory % heads",
        "    place = memory * room",
        "    t = tl.arange(0, C)",
        "    n = tl.arange(0, BN)",
    ]
    lines += [f"    {text}" for text in (SINCE, PART_TO) if shape.part]
    lines += [f"    {text}" for text in (room.head() if room else ())]
    if found.lay.sourced:
        lines.append("    at_SOURCES = tl.arange(0, SOURCES)")
    if any(row.view in SHARED for row in found.lay.rows):
        whole = f"(total + {found.lay.windows.width - 1})"  # with the rows before the first
        lines.append(f"    at_tail = (memory // heads) * {whole} * heads + memory % heads")
    for size in (size for size in sizes_of(found) if size != shape.along):
        lines.append(f"    at_{size} = tl.arange(0, B{size})")
        lines.append(f"    in_{size} = at_{size} < {size}")
    return lines


def chunk(found: Streams, loop: str, shape: Shape) -> Iterator[str]:
    """Yield which chunk it is, and where its rows lie; in a loop if a program has several."""
    if shape.alone and shape.part:
        loop = PART_ALONE
    elif shape.alone or shape.one:
        loop = ALONE if shape.alone else ONE
    yield from loop.splitlines()
    pad = " " * shape.indent
    for text in (*CHUNK.splitlines(), *(t.strip() for t in windowed(found.lay))):
        yield pad + text
    for name in found.plan.arguments():
        if name.startswith(CLOSES):
            ends = f"tiles.closes(position, low + live, {name.removeprefix(CLOSES)}, STEPS)"
            yield f"{pad}{name} = tl.where({ends}, 1.0, 0.0)"


def _put(found: Streams, held: Held, growth: Growth, ends: dict[str, list[str]]) -> None:
    """Add the store of a chunk's own entries of a state to ``ends``, under what it waits for."""
    if growth.tail:
        text = grow(held, found.say(growth.rows), growth.tail)
        ends.setdefault(growth.rows, []).append(text)
    elif growth.rows:
        ends.setdefault(growth.rows, []).append(append(held, found.say(growth.rows)))
    elif growth.number is not None:
        ends.setdefault(found.plan.output, []).append(_filled(held, growth.number))


def _filled(held: Held, number: float) -> str:
    """Write the store of a chunk's own entries of a state that are one number."""
    tile = f"(C, B{held.sizes[0]})" if held.sizes else "(C,)"
    return append(held, f"tl.full({tile}, {number}, REAL)")


def span_of(found: Streams) -> int:
    """Return the tokens of a window that all states of a form are kept for; 0 without one."""
    spans = set()
    for held in found.kept:
        op = found.plan[found.plan.following.get(held.name, held.name)].op
        spans.add(dict(op.options).get("span", 0) if isinstance(op, Call) else 0)
    return spans.pop() if len(spans) == 1 else 0


def _stays(found: Streams, name: str) -> bool:
    """Return whether a state's gradient before the chunk is what it was after it."""
    return same(found.plan[name]) and found.held(found.plan[name].reads()[0]) is not None


def _closings(found: Streams, shape: Shape) -> list[str]:
    """Write what interval ends put in place of states: copies of rows as they then are."""
    lines: list[str] = []
    plan, pad = found.plan, shape.indent
    places = {s.name: s for s in found.lay.states}
    for every, moves in sorted(plan.closed.items()):
        if found.lay.states or moves:
            closes = f"tiles.closes(position, low + live, {every}, STEPS)"
            lines.append(f"{' ' * pad}if {closes}:")
        for state, name in moves.items():
            source = next((s for s, n in plan.following.items() if n == name), None)
            if source is None:
                raise NoTiles("an interval's end that computes anew over kept pairs")
            held, other = found.held(state), found.held(source)
            lines.append(f"{' ' * pad}    tl.debug_barrier()")
            if held is None:
                value = load_state(places[source], f"end_{source}", "memory")
                text = store_state(places[state], f"end_{state}", "memory", value)
                lines += _each(places[state], shape, text, pad + 4)
                continue
            assert other is not None
            lines += _copied(found, held, other, shape)
    return lines


def _copied(found: Streams, held: Held, other: Held, shape: Shape) -> list[str]:
    load = load_block(found, other).replace("behind", "behind + live")
    store = store_block(held, "copied").replace("behind", "behind + live")
    pad = " " * (shape.indent + 4)
    lines = [
        f"{pad}for j in range(0, tl.cdiv(behind + live, BN)):",
        f"{pad}    at_N = j * BN + n",
    ]
    for text in (f"copied = {load}", store):
        lines.append(f"{pad}    {text}")
    if shape.along not in held.sizes:
        return lines
    inner = [f"    {text}" for text in lines[2:]]
    return [*lines[:2], *loop(shape.along, len(pad) + 4), *inner]
