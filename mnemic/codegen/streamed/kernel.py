"""A plan over kept pairs as the source of a Triton kernel, and its gradient's."""

from collections.abc import Iterator
from dataclasses import dataclass

from mnemic.codegen.adjoint import Adjoint
from mnemic.codegen.plan import Call
from mnemic.codegen.streamed.body import Body
from mnemic.codegen.streamed.layout import Growth, Streams
from mnemic.codegen.streamed.lines import append, load_block, store_block
from mnemic.codegen.streamed.passes import Passes
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.kernel import load_state, store_row, store_state
from mnemic.codegen.tiled.layout import Held

CHUNK = """\
low = tl.maximum(first + (c - 1) * ROWS, 0)
live = tl.minimum(first + c * ROWS, length) - low
behind = before + low
row = origin + tl.cast(low, tl.int64) * heads
"""

# what does not change from chunk to chunk is made anew in each: registers are dearer
FORWARD = "    for c in tl.range(0, chunks, disable_licm=True):"
BACKWARD = "    for i in tl.range(0, chunks, disable_licm=True):\n        c = chunks - 1 - i"
ALONE = "    c = tl.program_id(1)"


@dataclass(frozen=True)
class Shape:
    """What a kernel is: its name, its sentence, and whether a program runs a chunk alone."""

    name: str
    doc: str
    alone: bool
    span: int = 0
    """Pairs further back are seen by no row; 0 where all are."""

    @property
    def first_block(self) -> str:
        """The first block of pairs that any row sees."""
        return f"tl.maximum(behind - {self.span - 1}, 0) // BN" if self.span else "0"

    @property
    def indent(self) -> int:
        """The indentation of a chunk's statements."""
        return 4 if self.alone else 8


@dataclass(frozen=True)
class Written:
    """A kernel's source, and how many tiles of rows and of a block live in it at once."""

    text: str
    alive: tuple[int, int]


def forward(
    found: Streams, numbers: dict[str, str], shape: Shape, known: frozenset[str]
) -> Written:  # fmt: skip
    """The kernel of a chunk form: pairs in memory, ``known`` the states whose pairs are all there
    from the start."""
    lay, plan = found.lay, found.plan
    lines = _head(found, shape, ["rows_out"])
    for state in lay.states:
        text = load_state(state, f"start_{state.name}", "memory")
        lines.append(f"    {found.say(state.name)} = {text}")
    lines += _chunk(FORWARD, shape)
    out = store_row(lay, "rows_out", found.say(plan.output), (lay.value,))
    ends: dict[str, list[str]] = {plan.output: [out]}
    made = [held for held in found.kept if held.name not in known]
    for held in made:
        _put(found, held, found.growth[held.name], ends)
    moves = {s.name: plan.following[s.name] for s in lay.states
             if plan.following.get(s.name, s.name) != s.name}  # fmt: skip
    for name in moves.values():
        ends.setdefault(name, [])
    rewrites = {h.name: found.growth[h.name].kept for h in made
                if found.growth[h.name].kept != h.name}  # fmt: skip
    body = Body(found, Passes(found), numbers, shape.first_block, shape.indent, lasting=True)
    body.passes.check()
    behind = _closings(found, body)
    lines += body.lines(ends.items(), rewrites)
    if moves:
        pad = " " * shape.indent
        values = ", ".join(found.say(n) for n in moves.values())
        lines.append(f"{pad}{', '.join(found.say(n) for n in moves)} = {values}")
    lines += behind
    if made:
        lines.append(f"{' ' * shape.indent}tl.debug_barrier()")
    for state in lay.states:
        text = store_state(state, f"end_{state.name}", "memory", found.say(state.name))
        lines.append(f"    {text}")
    return Written("\n".join(lines) + "\n", body.alive)


def backward(found: Streams, back: Adjoint, numbers: dict[str, str], shape: Shape) -> Written:
    """The kernel of a form's gradient: chunks from the last to the first, d of pairs in memory."""
    lay, plan = found.lay, found.plan
    if lay.states:
        raise NoTiles("the gradient of states beside kept pairs")
    lines = _head(found, shape, [f"grad_{name}" for name in back.gradients])
    lines += _chunk(BACKWARD, shape)
    rows = {row.name: row for row in lay.rows}
    ends: dict[str, list[str]] = {}
    for name, gradient in back.gradients.items():
        text = store_row(lay, f"grad_{name}", found.say(gradient), rows[name].sizes)
        ends.setdefault(gradient, []).append(text)
    rewrites = {h.name: plan.following[h.name] for h in found.kept
                if not _stays(found, plan.following[h.name])}  # fmt: skip
    body = Body(found, Passes(found), numbers, shape.first_block, shape.indent)
    body.passes.check()
    lines += body.lines(ends.items(), rewrites)
    lines.append(f"{' ' * shape.indent}tl.debug_barrier()")
    return Written("\n".join(lines) + "\n", body.alive)


def parameters(found: Streams, extra: list[str]) -> list[str]:
    """The kernel's parameters: pointers, numbers, constants."""
    pointers = [f"rows_{row.name}" for row in found.lay.rows]
    pointers += [f"kept_{held.name}" for held in (*found.read, *found.kept)]
    for state in found.lay.states:
        pointers += [f"start_{state.name}", f"end_{state.name}"]
    numbers = ["total", "length", "heads", "position", "first", "chunks", "before", "room"]
    sizes = [name for size in sizes_of(found) for name in (size, f"B{size}")]
    constants = [*sizes, "C", "BN", "ROWS", "STEPS", "PRECISION", "REAL"]
    return [*pointers, *extra, *numbers, *(f"{name}: tl.constexpr" for name in constants)]


def sizes_of(found: Streams) -> tuple[str, ...]:
    """The sizes of channels."""
    sizes = [s for row in found.lay.rows for s in row.sizes]
    for held in (*found.read, *found.kept, *found.lay.states):
        sizes += held.sizes
    return tuple(dict.fromkeys(sizes))


def _head(found: Streams, shape: Shape, extra: list[str]) -> list[str]:
    lines = ["@triton.jit", f"def {shape.name}("]
    lines += [f"    {part}," for part in parameters(found, extra)]
    lines += ["):", f'    """{shape.doc}"""']
    lines += [
        "    memory = tl.program_id(0).to(tl.int64)",
        "    origin = (memory // heads) * total * heads + memory % heads",
        "    place = memory * room",
        "    t = tl.arange(0, C)",
        "    n = tl.arange(0, BN)",
    ]
    for size in sizes_of(found):
        lines.append(f"    at_{size} = tl.arange(0, B{size})")
        lines.append(f"    in_{size} = at_{size} < {size}")
    return lines


def _chunk(loop: str, shape: Shape) -> Iterator[str]:
    yield from (ALONE if shape.alone else loop).splitlines()
    for text in CHUNK.splitlines():
        yield " " * shape.indent + text


def _put(found: Streams, held: Held, growth: Growth, ends: dict[str, list[str]]) -> None:
    """A chunk's own entries of a state, once they are known."""
    if growth.rows:
        ends.setdefault(growth.rows, []).append(append(held, found.say(growth.rows)))
    elif growth.number is not None:
        tile = f"(C, B{held.sizes[0]})" if held.sizes else "(C,)"
        text = append(held, f"tl.full({tile}, {growth.number}, REAL)")
        ends.setdefault(found.plan.output, []).append(text)


def span_of(found: Streams) -> int:
    """The tokens of a window that all states of a form are kept for; 0 without one."""
    spans = set()
    for held in found.kept:
        op = found.plan[found.plan.following.get(held.name, held.name)].op
        spans.add(dict(op.options).get("span", 0) if isinstance(op, Call) else 0)
    return spans.pop() if len(spans) == 1 else 0


def _stays(found: Streams, name: str) -> bool:
    """Whether a state's gradient before the chunk is what it was after it."""
    op = found.plan[name].op
    return isinstance(op, Call) and op.function in ("rows_before", "first_rows")


def _closings(found: Streams, body: Body) -> list[str]:
    """What interval ends put in place of states: rows as they are by then, copied."""
    lines: list[str] = []
    pad = " " * body.indent
    plan = found.plan
    for every, moves in sorted(plan.closed.items()):
        if found.lay.states or moves:
            lines.append(f"{pad}if tiles.closes(position, low + live, {every}, STEPS):")
        for state, name in moves.items():
            source = next((s for s, n in plan.following.items() if n == name), None)
            if source is None:
                raise NoTiles("an interval's end that computes anew over kept pairs")
            held, other = found.held(state), found.held(source)
            if held is None:
                lines.append(f"{pad}    {found.say(state)} = {found.say(source)}")
                continue
            assert other is not None
            lines += _copied(found, held, other, pad + "    ")
    return lines


def _copied(found: Streams, held: Held, other: Held, pad: str) -> list[str]:
    load = load_block(found, other).replace("behind", "behind + live")
    store = store_block(held, "copied").replace("behind", "behind + live")
    return [
        f"{pad}tl.debug_barrier()",
        f"{pad}for j in range(0, tl.cdiv(behind + live, BN)):",
        f"{pad}    at_N = j * BN + n",
        f"{pad}    copied = {load}",
        f"{pad}    {store}",
    ]
