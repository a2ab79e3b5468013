"""The plan of a layer's token as the source of one Triton kernel."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import networkx as nx

from mnemic.codegen.emit import OUTPUT, at_once, wrapped
from mnemic.codegen.plan import Given, Quantity
from mnemic.codegen.step.loads import Finish, Raw, Told, load
from mnemic.codegen.step.prologue import Whole
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.kernel import load_state, store_state
from mnemic.codegen.tiled.layout import Held, Layout, Row
from mnemic.codegen.tiled.schedule import Order
from mnemic.codegen.tiled.statements import statement

BARRIER = "tl.debug_barrier()  # what is written may stand where others still read"


@dataclass(frozen=True)
class Drawn:
    """A plan laid out, ready to be printed."""

    lay: Layout
    whole: Whole
    taps: int
    groups: int
    numbers: dict[str, str]

    @property
    def steps(self) -> dict[str, int]:
        """By vector, in how many of a token's steps it has channels of its own."""
        found: dict[str, int] = {}
        for vector, step in self.whole.window:
            found[vector] = max(found.get(vector, 0), step + 1)
        return found

    @property
    def raws(self) -> tuple[str, ...]:
        """The coefficients that are read before their activations."""
        return tuple(dict.fromkeys(x.name for x in self.whole.loads.values() if isinstance(x, Raw)))

    def reads(self, source: str) -> bool:
        """Return whether the kernel reads the gate, the norm's weight, or a number of the token."""
        texts = [x.source for x in self.whole.loads.values() if isinstance(x, Finish | Told)]
        return any(text.split(".")[0] == source for text in texts)

    @property
    def places(self) -> bool:
        """Whether the rule looks at a token's place in its document."""
        return bool(self.lay.plan.closed) or self.reads("position")

    def size(self, vector: str, step: int) -> str:
        """Return the size of a vector's channels."""
        return self.lay.sizes(self.whole.window[vector, step][-1])[-1]


def kernel(drawn: Drawn, doc: str) -> str:
    """Write the kernel: a program takes one memory (or a block of its values) through one token."""
    lines = ["@triton.jit", "def step_kernel("]
    lines += [f"    {part}," for part in parameters(drawn)]
    lines += ["):", f'    """{doc}"""', *opening(drawn), *_body(drawn), f"    {BARRIER}"]
    for state in drawn.lay.states:
        number = ending(drawn, state.sizes)
        lines.append(f"    {store_state(state, f'end_{state.name}', number, state.name)}")
    lines += tails(drawn, lambda vector: vector != "q", 4)
    lines += windows(drawn)
    return "\n".join(lines) + "\n"


def ending(drawn: Drawn, sizes: tuple[str, ...]) -> str:
    """Write the index of the memory at which a state of these sizes is stored."""
    return "memory" if drawn.lay.split in ("", *sizes) else "beside * heads + head"


def parameters(drawn: Drawn, scratch: tuple[str, ...] = ()) -> list[str]:
    """List the kernel's parameters: pointers, numbers, constants; for each of the sizes in
    ``scratch`` it takes a buffer in which it keeps rows for a while."""
    lay = drawn.lay
    pointers = ["mixed", *(["tail", "next_tail", "taps"] if drawn.taps else [])]
    pointers += [f"raw_{name}" for name in drawn.raws]
    pointers += [name for name in ("rows_gate", "norm_weight") if drawn.reads(name)]
    pointers.append("rows_out")
    for state in lay.states:
        pointers += [f"start_{state.name}", f"end_{state.name}"]
    for name in drawn.whole.tails:
        pointers += [f"start_{name}", f"end_{name}"]
    pointers += [f"scratch_{size}" for size in scratch]
    pointers += ["positions"] if drawn.places else []
    pointers += ["token_numbers"] if drawn.reads("number") else []
    pointers.append("slots")
    numbers = ["heads", "width", *(f"first_{name}" for name in drawn.steps)]
    sizes = [name for size in lay.channels for name in (size, f"B{size}")]
    constants = [*sizes, "TAPS", "GROUPS", "VALUES", "FINISH", "SHARED", "PRECISION", "REAL"]
    return [*pointers, *numbers, *(f"{name}: tl.constexpr" for name in constants)]


def opening(drawn: Drawn, along: tuple[str, ...] = ()) -> list[str]:
    """Write the head of a step kernel's body: which memory the program runs, the index of each axis
    of channels (except those in ``along``, which it loops over), and where the projections'
    channels begin."""
    lay = drawn.lay
    lines = [
        "    memory = tl.program_id(0).to(tl.int64)",
        "    batch = memory // heads",
        "    head = memory % heads",
        "    slot = batch",
        "    if slots is not None:  # states lie in a pool",
        "        slot = tl.load(slots + batch).to(tl.int64)",
        "        if slot < 0:",
        "            return",
        "        memory = slot * heads + head",
        "    beside = batch if SHARED else slot  # where several programs read what one writes",
    ]
    for size in (name for name in lay.channels if name not in along):
        block = f"tl.program_id(1) * B{size} + " if size == lay.split else ""
        lines.append(f"    at_{size} = {block}tl.arange(0, B{size})")
        lines.append(f"    in_{size} = at_{size} < {size}")
    lines.append("    token = mixed + batch * width")
    for number in range(drawn.taps - 1):
        lines.append(f"    before_{number} = tail + (slot * {drawn.taps - 1} + {number}) * width")
        lines.append(
            f"    after_{number} = next_tail + (beside * {drawn.taps - 1} + {number}) * width"
        )
    lines += ["    position = tl.load(positions + slot)"] if drawn.places else []
    lines += ["    number = tl.load(token_numbers + slot)"] if drawn.reads("number") else []
    for vector, steps in drawn.steps.items():
        if vector != "q":
            lines += [f"    {_place(drawn, vector, step, 'head')}" for step in range(steps)]
    return lines


def _place(drawn: Drawn, vector: str, step: int, head: str) -> str:
    """Write the first channel of a vector of this head at one of a token's steps."""
    row = f"({step} * heads + {head})" if step else head
    return f"place_{vector}_{step} = first_{vector} + {row} * {drawn.size(vector, step)}"


# -- the body --------------------------------------------------------------------------------


def _body(drawn: Drawn) -> list[str]:
    """Write how states are moved, queries read them, and what an interval's end moves follows."""
    plan = drawn.lay.plan
    closings = plan.phases().closings
    anew = any(OUTPUT in closing.moves for closing in closings)
    order = _order(drawn)
    late = [n for c in closings for q in c.statements for n in q.reads()]
    late += [n for moves in plan.closed.values() for n in moves.values()]
    ends = [*plan.following.values(), *late]
    asked = _reached_by_query(drawn)
    if drawn.groups > 1 and (anew or asked & {*ends, *_closing_names(drawn)}):
        raise NoTiles("a memory that depends on the queries of a group")
    lines = [*_first(drawn, order, asked)]
    lines += _until(drawn, order, [n for n in ends if n not in asked], 4)
    indent = 8 if drawn.groups > 1 else 4
    lines += queries(drawn)
    lines += _until(drawn, order, [drawn.whole.read], indent)
    lines += _until(drawn, order, [n for n in ends if n in asked], indent)
    end = _end(drawn, order, indent)
    lines += [] if anew else end
    lines += _advance(drawn)
    return lines + (end if anew else [])


def _first(drawn: Drawn, order: Order[Row | Held], asked: set[str]) -> Iterator[str]:
    """Yield the loads that come first, so that none waits for another computation; the states are
    not among them if the plan has intervals, whose many matrices would not fit together."""
    lay = drawn.lay
    late = {n for n, x in drawn.whole.loads.items() if isinstance(x, Finish)} | asked
    yield from _until(drawn, order, [row.name for row in lay.rows if row.name not in late], 4)
    if not lay.plan.closed:
        yield from _until(drawn, order, [state.name for state in lay.states], 4)


def _order(drawn: Drawn) -> Order[Row | Held]:
    lay, plan = drawn.lay, drawn.lay.plan
    phases = plan.phases()
    inside = {q.name: q for q in (*phases.before, *phases.scan) if not isinstance(q.op, Given)}
    loads: dict[str, Row | Held] = {row.name: row for row in lay.rows}
    loads |= {state.name: state for state in lay.states}
    return Order(lay, inside, loads)


def _reached_by_query(drawn: Drawn) -> set[str]:
    """Return the quantities that depend on the query."""
    graph = drawn.lay.plan.graph
    found = {q for q in drawn.whole.queries if q in graph}
    return found.union(*(nx.descendants(graph, q) for q in found))


def _closing_names(drawn: Drawn) -> set[str]:
    closings = drawn.lay.plan.phases().closings
    return {q.name for closing in closings for q in closing.statements}


def queries(drawn: Drawn) -> list[str]:
    """Write the start of the loop over the queries that read this memory."""
    places = [f"{_place(drawn, 'q', 0, 'query')}"] if "q" in drawn.steps else []
    if drawn.groups == 1:
        return ["    query = head", *(f"    {line}" for line in places)]
    lines = ["    for part in range(0, GROUPS):", "        query = head * GROUPS + part"]
    return lines + [f"        {line}" for line in places]


def _end(drawn: Drawn, order: Order[Row | Held], indent: int) -> list[str]:
    """Write the store of the output, normed and gated if this program has all of its channels."""
    lay, read, pad = drawn.lay, drawn.whole.read, " " * indent
    size = lay.sizes(read)[-1]
    number = "batch * heads * GROUPS + query"
    store = f"tiles.store_vector(rows_out, {number}, at_{size}, {size}, {{}})"
    lines = []
    if lay.plan.output == read:
        lines.append(pad + store.format(read))
    else:
        lines.append(f"{pad}if FINISH:")
        lines += _until(drawn, order, [lay.plan.output], indent + 4)
        lines.append(f"{pad}    {store.format(lay.plan.output)}")
        lines += [f"{pad}else:", f"{pad}    {store.format(read)}"]
    if drawn.taps and "q" in drawn.steps:
        lines.append(f"{pad}{BARRIER}")
        lines += tails(drawn, lambda vector: vector == "q", indent)
    return lines


def _until(drawn: Drawn, order: Order[Row | Held], ends: list[str], indent: int) -> Iterator[str]:
    """Yield the loads and statements that some ends still need, in order."""
    for end in ends:
        for step in order.until(end):
            if isinstance(step, Quantity):
                yield from _line(drawn, step, indent, {})
            else:
                yield f"{' ' * indent}{step.name} = {_loaded(drawn, step)}"


def _loaded(drawn: Drawn, found: Row | Held) -> str:
    if isinstance(found, Held):
        return load_state(found, f"start_{found.name}", "memory")
    return load(drawn.lay, found, drawn.whole.loads[found.name])


def _line(drawn: Drawn, quantity: Quantity, indent: int, spelled: dict[str, str]) -> list[str]:
    source = statement(drawn.lay, quantity, spelled, apart=True)
    return wrapped(quantity.name, source, drawn.numbers.get(quantity.equation, ""), indent)


def _advance(drawn: Drawn) -> list[str]:
    """Write how states move on; where an interval of the document ends, its closing moves more."""
    plan, read = drawn.lay.plan, drawn.whole.read
    moves = {s: n for s, n in plan.following.items() if s != n}
    renamed = {n: s for s, n in moves.items()}
    lines = [] if not moves else [f"    {at_once(moves)}"]
    for closing in plan.phases().closings:
        spelled = renamed | {n: read if s == OUTPUT else s for n, s in closing.renamed.items()}
        lines.append(f"    if tiles.closes(position, 1, {closing.every}, 1):")
        for quantity in closing.statements:
            lines += _line(drawn, quantity, 8, spelled)
        ends = {read if s == OUTPUT else s: spelled.get(n, n) for s, n in closing.moves.items()}
        lines.append(f"        {at_once(ends)}")
    return lines


# -- the convolution's window ----------------------------------------------------------------


def tails(drawn: Drawn, chosen: Callable[[str], bool], indent: int) -> list[str]:
    """Write the window as the next token will find it: every tap but the oldest."""
    lines = []
    for (vector, step), rows in drawn.whole.window.items():
        if not drawn.taps or not chosen(vector):
            continue
        size = drawn.size(vector, step)
        own = drawn.lay.split in ("", size)
        name = "store_vector" if own else "store_once"  # by the first of a memory's programs
        for number, row in enumerate(rows[1:]):
            place = f"after_{number} + place_{vector}_{step}"
            text = f"tiles.{name}({place}, 0, at_{size}, {size}, {row})"
            lines.append(" " * indent + text)
    return lines


def windows(drawn: Drawn) -> list[str]:
    """Write the stores of what is carried of all windows of tokens."""
    return [f"    {_window(drawn, *tail)}" for tail in drawn.whole.tails.items()]


def _window(drawn: Drawn, state: str, window: str) -> str:
    """Write the store of what is carried of a window of tokens."""
    slots, *channels = drawn.lay.sizes(window)
    places = "".join(f", at_{size}, {size}" for size in channels)
    name = "store_tail" if channels else "store_tail_numbers"
    number = ending(drawn, drawn.lay.sizes(window))
    return f"tiles.{name}(end_{state}, {number}, at_{slots}, {slots}{places}, {window})"


def used(drawn: Drawn) -> frozenset[str]:
    """Return the names that the kernel itself has."""
    places = {f"place_{vector}_{step}" for vector, step in drawn.whole.window}
    own = {part.removesuffix(": tl.constexpr") for part in parameters(drawn)} | places
    places |= {f"{side}_{n}" for n in range(drawn.taps) for side in ("before", "after")}
    return frozenset(
        own
        | {"memory", "token", "batch", "head", "query", "part", "position", "number"}
        | {"slot", "beside"}
        | places
    )


def check(drawn: Drawn) -> None:
    """Raise ``NoTiles`` for a name of the kernel's own, or for channels that nothing reads."""
    named = {q.name for q in drawn.lay.tiles} | set(drawn.whole.loads)
    for name in sorted(named & used(drawn)):
        raise NoTiles(f"the name {name}, which kernels use themselves")
    missing = [n for rows in drawn.whole.window.values() for n in rows
               if n not in {row.name for row in drawn.lay.rows}]  # fmt: skip
    if missing:
        raise NoTiles("channels that nothing reads")
