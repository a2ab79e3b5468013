"""Kernels of diagonal memories: a memory is one number for each channel, and channels lie side by
side.

A tile is a block of memories ("lanes"); every quantity of a token's plan is one number a lane, and
a product with the memory is a product of numbers.
"""

from collections.abc import Iterator

from mnemic.codegen.adjoint import Adjoint
from mnemic.codegen.emit import wrapped
from mnemic.codegen.ops import called
from mnemic.codegen.plan import Call, Given, Map, Plan, Quantity
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.kernel import JIT, NUMBERS
from mnemic.codegen.tiled.layout import CLOSES
from mnemic.codegen.tiled.printer import UnknownFunction, print_exact
from mnemic.codegen.words import in_words

OPENING = """\
    lane = tl.program_id(1) * LANES + tl.arange(0, LANES)
    there = lane < heads
    sequence = tl.program_id(0).to(tl.int64)
    memory = sequence * heads + lane
    begin = tiles.begin_of(bounds, sequence, total, 1)
    length = tiles.length_of(bounds, sequence, total, 1)
"""

FORWARD = """\
    slot = tiles.slot_of(bounds, sequence, begin, pieces, PIECE)
    since, until = 0, length
    if not READ:
        since = piece * PIECE
        until = tl.minimum(length, since + PIECE)
    from_piece = memory if READ else (slot + piece) * heads + lane
"""

BACKWARD = """\
    since = piece * PIECE
    until = tl.minimum(length, since + PIECE)
"""

ROW = "        row = (begin + at) * heads + lane\n"


def forward(plan: Plan, numbers: dict[str, str], name: str, doc: str) -> str:
    """Write the kernel of a token form: arguments by row, memories in and out."""
    states = plan.states()
    pointers = [f"rows_{n}" for n in plan.arguments()] + ["rows_out"]
    pointers += [p for s in states for p in (f"start_{s}", f"end_{s}", f"kept_{s}")]
    lines = _head(name, pointers, ["KEEP", "READ"], doc)
    lines += FORWARD.splitlines()
    lines += [f"    {s} = {_load(f'start_{s}', 'from_piece')}" for s in states]
    lines += ["    for at in range(since, until):", *ROW.splitlines(), *_store_states(states)]
    lines += [f"        {n} = {_load(f'rows_{n}', 'row')}" for n in plan.arguments()]
    phases = plan.phases()
    lines += _lines((*phases.before, *phases.scan), numbers)
    lines += ["        if READ:", f"            {_store('rows_out', 'row', plan.output)}"]
    if phases.closings:
        raise NoTiles("intervals of a diagonal memory")
    lines += _moves(plan)
    lines += ["    if READ:"] if states else []
    lines += [f"        {_store(f'end_{s}', 'memory', s)}" for s in states]
    return "\n".join(lines) + "\n"


def _store_states(states: tuple[str, ...]) -> Iterator[str]:
    """Keep the states at the start of every piece; of every token, where a piece is made anew."""
    if not states:
        return
    yield "        if KEEP and READ and at % PIECE == 0:"
    yield "            place = (slot + at // PIECE) * heads + lane"
    yield from (f"            {_store(f'kept_{s}', 'place', s)}" for s in states)
    yield "        if not READ:"
    yield "            place = memory * PIECE + at - since"
    yield from (f"            {_store(f'kept_{s}', 'place', s)}" for s in states)


def backward(back: Adjoint, rows: tuple[str, ...], numbers: dict[str, str], name: str, doc: str
) -> str:  # fmt: skip
    """Write the kernel of a token form's gradient, from the last token to the first."""
    plan = back.plan
    given = [n for n in plan.arguments() if n not in back.states]
    if any(n.startswith(CLOSES) for n in given):
        raise NoTiles("intervals of a diagonal memory")
    out = next(n for n in (*given, "d_out") if n.startswith("d_out"))
    pointers = [*(f"rows_{n}" for n in rows), f"rows_{out}"]
    pointers += [f"kept_{s}" for s in back.carried]
    pointers += [p for s in plan.states() for p in (f"start_{s}", f"end_{s}")]
    pointers += [f"grad_{n}" for n in back.gradients]
    lines = _head(name, pointers, [], doc)
    lines += BACKWARD.splitlines()
    lines += [f"    {s} = {_load(f'start_{s}', 'memory')}" for s in plan.states()]
    lines += ["    for done in range(0, until - since):", "        at = until - 1 - done"]
    lines += ROW.splitlines()
    kept = "memory * PIECE + at - since"
    lines += [f"        {s} = {_load(f'kept_{s}', kept)}" for s in back.states]
    lines += [f"        {n} = {_load(f'rows_{n}', 'row')}" for n in given]
    phases = plan.phases()
    lines += _lines((*phases.before, *phases.scan), numbers)
    lines += [f"        {_store(f'grad_{n}', 'row', g)}" for n, g in back.gradients.items()]
    lines += _moves(plan)
    lines += [f"    {_store(f'end_{s}', 'memory', s)}" for s in plan.states()]
    return "\n".join(lines) + "\n"


def _head(name: str, pointers: list[str], flags: list[str], doc: str) -> list[str]:
    constants = [f"{n}: tl.constexpr" for n in ("LANES", "PIECE", *flags, "REAL")]
    lines = [JIT, f"def {name}("]
    lines += [f"    {part}," for part in (*pointers, *NUMBERS, *constants)]
    return [*lines, "):", f'    """{doc}"""', *OPENING.splitlines()]


def _load(pointer: str, place: str) -> str:
    return f"tl.load({pointer} + {place}, mask=there, other=0.0).to(REAL)"


def _store(pointer: str, place: str, value: str) -> str:
    return f"tl.store({pointer} + {place}, {value}, mask=there)"


def _moves(plan: Plan) -> list[str]:
    moves = {s: n for s, n in plan.following.items() if s != n}
    return [f"        {', '.join(moves)} = {', '.join(moves.values())}"] if moves else []


def _lines(quantities: tuple[Quantity, ...], numbers: dict[str, str]) -> Iterator[str]:
    for quantity in quantities:
        if not isinstance(quantity.op, Given):
            comment = numbers.get(quantity.equation, "")
            yield from wrapped(quantity.name, _statement(quantity), comment, 8)


def _statement(quantity: Quantity) -> str:
    match quantity.op:
        case Map(expr=expr, reads=reads):
            try:
                names = {read.symbol: read.quantity for read in reads}
                return print_exact(expr, names, "tl.zeros((LANES,), REAL)")
            except UnknownFunction as error:
                raise NoTiles(f"the function {error}") from None
        case Call(function=function, arguments=arguments, options=options):
            operation = called(quantity)
            if operation and operation.lane:
                return operation.lane.format(*arguments, **dict(options))
            raise NoTiles(f"no tiles of single numbers for {in_words(function)}")
        case _:
            raise NoTiles("a product of matrices of single numbers")
