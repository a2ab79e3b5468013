"""A gradient over kept pairs without a sequential loop: a program for each chunk of rows, and one
for each block of pairs.

Where a pair's gradient is a plain sum over the rows after it,

    d xᵢ = d xᵢ(end) + Σ_(t > i) f(row t, pair i),

no chunk of rows waits for another: one program takes one chunk and gives the gradients of its rows,
another takes one block of pairs and sums over the chunks behind it. Both are the adjoint plan, cut:
the first leaves out the gradients of pairs, the second everything else. Whether it may be cut so is
read off the plan: nothing but the sums themselves reads a gradient of pairs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sympy import Symbol

from mnemic.codegen.adjoint import Adjoint
from mnemic.codegen.ops import called
from mnemic.codegen.plan import Given, Map, Op, Plan, Quantity
from mnemic.codegen.streamed.lines import same
from mnemic.codegen.streamed.pair_layout import Streams
from mnemic.codegen.streamed.pair_passes import Passes, reads_behind
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import ROWS, TALL, Held
from mnemic.codegen.tiled.windows import ROWS as PLAIN


@dataclass(frozen=True)
class Added:
    """What chunks of rows contribute to the gradients of pairs before them, with the layout of its
    plan."""

    pairs: Streams
    added: dict[str, str]
    """By gradient of pairs, what rows add to it, a quantity of ``pairs``, if anything."""
    handed: tuple[Held, ...]
    """What is loaded that another kernel stores, a tile a chunk: the sizes of its channels."""


@dataclass(frozen=True)
class SharedOut(Added):
    """The two parts of a gradient, each with its plan's layout: of rows, and of pairs."""

    rows: Streams
    """The gradients of a chunk's rows, but for what later chunks give them as pairs."""
    gradients: dict[str, str]
    """By argument, its gradient, a quantity of ``rows``."""


def shared_out(under: Streams, back: Adjoint, known: Mapping[str, str]) -> SharedOut | None:
    """Cut a gradient laid out as a whole in two; ``None`` where chunks wait for each other.

    ``known`` tells the pairs that are arguments' rows, and whose.
    """
    if under.lay.states or any(row.view != PLAIN for row in under.lay.rows):
        return None
    rows = copied(under.plan)
    gradients = {n: _without(rows, end, _own_entries(rows, n)) for n, end in back.gradients.items()}
    told = {(back.carried[state], n) for state, n in known.items() if n in gradients}
    if None in gradients.values() or told != _taken_over(under.plan, back):
        return None
    sums = summed(under)
    if sums is None:
        return None
    named = _named(gradients)
    leave(rows, named | {tile.name: tile.name for tile in sums.handed})
    if set(under.plan.states()) & {*rows.graph, *sums.pairs.plan.graph}:
        return None
    first = replace(laid(under, rows), kept=())
    return SharedOut(sums.pairs, sums.added, sums.handed, first, named)


def summed(under: Streams) -> Added | None:
    """Return what a chunk of rows adds to the pairs' gradients that are ``kept``; ``None`` where
    they do more than grow, or what is added is made of what no tile of rows holds."""
    pairs = copied(under.plan)
    ends = {held.name: pairs.following[held.name] for held in under.kept}
    ends = {n: end for n, end in ends.items() if not _stays(n)(pairs[end])}
    added = {n: _added(pairs, n, end) for n, end in ends.items()}
    if None in added.values():
        return None
    named = _named(added)
    leave(pairs, named)
    handed = _handed(laid(under, pairs), tuple(named.values()))
    if handed is None:
        return None
    for tile in handed:
        pairs.rewrite(replace(pairs[tile.name], op=Given()))
    leave(pairs, named)
    return Added(laid(under, pairs), named, handed)


def _named(found: Mapping[str, str | None]) -> dict[str, str]:
    return {name: end for name, end in found.items() if end is not None}


def laid(under: Streams, plan: Plan) -> Streams:
    """Lay a part of a plan out as the whole."""
    return replace(under, lay=replace(under.lay, plan=plan, tiles=plan.ordered()))


def copied(plan: Plan) -> Plan:
    found = plan.emptied()
    found.graph = plan.graph.copy()
    return found


def leave(plan: Plan, results: dict[str, str]) -> None:
    """Leave of a plan what these results need."""
    plan.following, plan.results = {}, results
    plan.keep(plan.needed())


# -- sums, and what is left out of them --------------------------------------------------------


def _stays(state: str) -> Callable[[Quantity], bool]:
    """Return a test of whether a quantity is the unchanged gradient of a pair, as it came in."""
    return lambda quantity: same(quantity) and quantity.reads()[0] == state


def _added(plan: Plan, state: str, end: str) -> str | None:
    """Return what is added to a gradient of pairs; ``None`` where it does more than grow."""
    grows = any(_stays(state)(plan[read]) for read in plan[end].reads())
    return _without(plan, end, _stays(state)) if grows else None


def _own_entries(plan: Plan, argument: str) -> Callable[[Quantity], bool]:
    """Return a test for a chunk's own entries of pairs' gradients that an argument's rows get."""

    def tells(quantity: Quantity) -> bool:
        if not reads_behind(quantity):
            return False
        state, like = quantity.reads()
        return like == argument and plan[state].op == Given(state=True)

    return tells


def _taken_over(plan: Plan, back: Adjoint) -> set[tuple[str, str]]:
    """Return gradients of pairs whose own entries an argument's rows get, with that argument."""
    return {
        (plan[read].reads()[0], name)
        for name, end in back.gradients.items()
        for read in plan[end].reads()
        if _own_entries(plan, name)(plan[read])
    }


def _without(plan: Plan, end: str, leaves: Callable[[Quantity], bool]) -> str | None:
    """Take terms out of a sum and return its name; ``None`` where they are no terms of a sum."""
    quantity = plan[end]
    leaving = [name for name in quantity.reads() if leaves(plan[name])]
    if not leaving:
        return None if leaves(quantity) else end
    op = _rest(quantity.op, leaving)
    if op is None:
        return None
    first = op.reads[0]
    if op.expr == _symbol(op, first.symbol) and first.axes == quantity.axes:
        return first.quantity
    plan.rewrite(replace(quantity, op=op))
    return end


def _rest(op: Op, leaving: list[str]) -> Map | None:
    if not isinstance(op, Map):
        return None
    rest, kept = op.expr, []
    for read in op.reads:
        symbol = _symbol(op, read.symbol)
        if read.quantity not in leaving:
            kept.append(read)
            continue
        rest -= symbol
        if symbol in rest.free_symbols:
            return None
    return Map(rest, tuple(kept)) if kept else None


def _symbol(op: Map, name: str) -> Symbol:
    return next(symbol for symbol in op.expr.free_symbols if symbol.name == name)


# -- what is handed on ---------------------------------------------------------------------------


def _handed(pairs: Streams, ends: tuple[str, ...]) -> tuple[Held, ...] | None:
    """Return the quantities of a chunk's rows that are stored, and loaded for each block of pairs;
    ``None`` where one is no tile of rows.

    They are results of sums over pairs or of products. A tile that is computed elementwise from
    arguments and such numbers a row is recomputed: those take fewer bytes.
    """
    passes = Passes(pairs)
    names: dict[str, None] = {}
    for quantity in passes.needed(ends):
        if pairs.streams(quantity.name):
            for read in passes.reads(quantity):
                names |= {} if pairs.streams(read) else dict.fromkeys(_made(passes, read))
    sizes = {name: pairs.lay.sizes(name) for name in names}
    if any(first != ROWS or set(others) & {*TALL, ""} for first, *others in sizes.values()):
        return None
    if pairs.wide & names.keys():
        return None
    return tuple(Held(name, size[1:]) for name, size in sizes.items())


def _made(passes: Passes, name: str) -> tuple[str, ...]:
    """Return what of a quantity of rows is stored: itself, or the numbers a row that make it."""
    if not any(_taken(passes, quantity) for quantity in passes.needed((name,))):
        return ()
    quantity = passes.inside[name]
    if len(quantity.axes) == 1 or _taken(passes, quantity):
        return (name,)
    below = [n for read in passes.reads(quantity) for n in _made(passes, read)]
    numbers = all(len(passes.inside[n].axes) == 1 for n in below)
    return tuple(below) if numbers else (name,)


def _taken(passes: Passes, quantity: Quantity) -> bool:
    """Return whether a quantity takes a product, a sum over pairs or another costly operation."""
    operation = called(quantity)
    costly = operation is not None and operation.streaming.costly
    return costly or heavy(quantity) or bool(passes.sums(quantity))
