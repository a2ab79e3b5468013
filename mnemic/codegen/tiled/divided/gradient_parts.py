"""A gradient's plan in three kernels, cut at what the gradients of states reach.

Given are a chunk's arguments, the states at its start (which the form has kept) and the gradient of
its output; carried, from the last chunk to the first, are the gradients of the states.

    parallel   what no carried gradient reaches, as far as another kernel loads it
    scan       what the next of the carried gradients depends on; each chunk's is stored
    rest       the gradients of arguments, from the states and the gradients of states that stand
               at each chunk's start and end
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import networkx as nx

from mnemic.codegen.adjoint import Adjoint
from mnemic.codegen.cut import cut
from mnemic.codegen.ops import called
from mnemic.codegen.plan import Given, Map, Plan, Quantity
from mnemic.codegen.tiled.divided import costs
from mnemic.codegen.tiled.divided.two_kernels import Handed, laid, only
from mnemic.codegen.tiled.divided.value_blocks import Values
from mnemic.codegen.tiled.divided.where import handed_on
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import Layout


@dataclass(frozen=True)
class GradientParts:
    """The layouts of the kernels, and the tiles of a chunk that stand between them."""

    parallel: Layout | None
    """None where nothing is worth a kernel before the scan."""
    scan: Layout
    rest: Layout
    whole: Layout
    """The layout of the gradient in one kernel."""
    back: Adjoint
    handed: tuple[Handed, ...]
    """What ``parallel`` stores."""
    scanned: tuple[Handed, ...]
    """What the scan stores: the carried gradients behind a chunk, and what it computes of them."""
    starts: tuple[Handed, ...]
    """The states at a chunk's start."""
    values: Values

    @property
    def tiles(self) -> tuple[Handed, ...]:
        """All that stands between kernels."""
        return (*self.starts, *self.handed, *self.scanned)


def gradient_parts(lay: Layout, back: Adjoint) -> GradientParts | None:
    """Divide a gradient's plan; None where the carried gradients reach every product."""
    values, states = Values.of(lay), lay.plan.states()
    if values is None or not states:
        return None
    plan = lay.plan
    following = {end for state, end in plan.following.items() if end != state}
    reached = set(states).union(*(nx.descendants(plan.graph, state) for state in states))
    needed = {q.name for q in plan.ordered() if not isinstance(q.op, Given)}
    scan = needed & reached & following.union(*(nx.ancestors(plan.graph, n) for n in following))
    free, last = needed - reached, needed & reached - scan
    last |= {end for end in back.gradients.values() if end in needed - scan}
    if not any(heavy(plan[name]) for name in free | last):
        return None
    first = handed_on(lay, free, scan, barred=free & values.sums)
    made = free & {*first}.union(*(nx.ancestors(plan.graph, name) for name in first))
    under = cut(plan, first)
    later = handed_on(
        replace(lay, plan=under), ((made - last) | scan) & {*under.graph} - {*first},
        (free - made) | last, barred=scan & values.sums,
    )  # fmt: skip
    return _parts(lay, back, values, first, later, scan)


def _parts(
    lay: Layout, back: Adjoint, values: Values, first: tuple[str, ...], later: tuple[str, ...],
    scanned: set[str],
) -> GradientParts:  # fmt: skip
    plan, states = lay.plan, lay.plan.states()
    stored = tuple(dict.fromkeys((*first, *(name for name in later if name not in scanned))))
    computed = tuple(name for name in later if name in scanned)
    parallel, scan, rest = only(plan, stored), cut(plan, first), _rest(lay, back, (*first, *later))
    scan = replace(scan, results={name: name for name in computed})
    scan.keep(scan.needed() | set(states))
    carried = tuple(state for state in states if state in rest.arguments())
    given = (*back.states, *first, *later)
    return GradientParts(
        laid(lay, parallel, given) if stored else None, laid(lay, scan, given),
        laid(lay, rest, (*given, *states)), lay, back,
        tuple(_stored(lay, name, (scan, rest)) for name in stored),
        tuple(_stored(lay, name, (rest,)) for name in (*carried, *computed)),
        tuple(_stored(lay, name, (parallel, scan, rest)) for name in back.states), values,
    )  # fmt: skip


def _stored(lay: Layout, name: str, plans: Collection[Plan]) -> Handed:
    """Return a quantity as it is handed to some plans: rounded to the call's own 16 bits where all
    that is taken of it are products, of matrices or of entries that are summed, which products of
    matrices would round as well."""
    readers = [(plan, plan[n]) for plan in plans if name in plan.graph
               for n in plan.graph.successors(name)]  # fmt: skip
    rounded = all(
        costs.rounds(lay, name, [quantity]) or _summed(plan, quantity, name)
        for plan, quantity in readers
    )
    return Handed(name, lay.sizes(name), rounded)


def _summed(plan: Plan, quantity: Quantity, name: str) -> bool:
    """Return whether a quantity is a product of entries, of which sums alone are taken."""
    op = quantity.op
    if not isinstance(op, Map) or plan.is_end(quantity.name):
        return False
    read = next(read for read in op.reads if read.quantity == name)
    symbol = next(s for s in op.expr.free_symbols if s.name == read.symbol)
    sums = (called(plan[n]) for n in plan.graph.successors(quantity.name))
    linear = not (op.expr / symbol).has(symbol) and len(op.reads) > 1
    return linear and all(operation is not None and operation.sums for operation in sums)


def _rest(lay: Layout, back: Adjoint, loaded: Collection[str]) -> Plan:
    """Return the plan of arguments' gradients, of what is loaded: gradients of states as well."""
    plan = only(cut(lay.plan, loaded), tuple(dict.fromkeys(back.gradients.values())))
    for state in lay.plan.states():
        if state in plan.graph:
            plan.rewrite(Quantity(state, plan.axes(state), Given()))
    return plan
