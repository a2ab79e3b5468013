"""Which product of a chunk should come last in a kernel: one of rows against channels.

Triton chooses one layout of warps for all products in a body of code, that which suits the last of
them: down its rows if it has no fewer rows than columns, along its columns otherwise. (Products of
Hopper's warp groups, which have 64 rows at least, each have a layout of their own.) A chunk has
fewer rows than memories have channels. So if its last product made a memory or a square of rows,
all warps would lie down sixteen or thirty-two rows, and each would compute the whole of every
product, with its operands in its own registers. With a product of rows against channels last, moved
behind the next states, the warps share the channels.
"""

from collections.abc import Iterable
from dataclasses import replace

import networkx as nx
import sympy as sp

from mnemic.codegen.ops import called
from mnemic.codegen.plan import Fused, Map, Plan, Product, Quantity
from mnemic.codegen.tiled.layout import ROWS, Layout

CHANNELS = {"v", "k"}
"""Axes that are not a chunk's rows."""


def heavy(quantity: Quantity) -> bool:
    """Return whether a kernel computes a quantity by matrix products."""
    if isinstance(quantity.op, Product | Fused):
        return True
    operation = called(quantity)
    return operation is not None and operation.tile is not None and operation.tile.multiplies


def latest(plan: Plan, ends: Iterable[str]) -> tuple[str, ...]:
    """Return a product that can come last, the quantities computed from it, and finally the one of
    ``ends`` that they lead to.

    Nothing else reads any of these quantities; the product reads no memory, and no other product
    depends on it. Empty where no end has such a product.
    """
    needed = plan.needed()
    kept = tuple(ends)
    for end in reversed(kept):
        waiting = (_waiting(plan, name, end, kept, needed) for name in _behind(plan, end))
        found = [tail for tail in waiting if tail]
        if found:
            return min(found, key=lambda tail: sum(heavy(plan[n]) for n in plan[tail[0]].reads()))
    return ()


def _behind(plan: Plan, end: str) -> list[str]:
    """Return an end and all that it is computed from, the nearest first."""
    turned = plan.graph.reverse(copy=False)
    return [end, *(name for _, name in nx.bfs_edges(turned, end))]


def _waiting(
    plan: Plan, name: str, end: str, ends: tuple[str, ...], needed: set[str]
) -> tuple[str, ...]:
    """Return a quantity and what follows from it, if it is a product that can come last; else
    nothing."""
    product = _product(plan[name])
    if product is None or not _of_rows(plan, plan[name], product):
        return ()
    after = nx.descendants(plan.graph, name) & needed
    if end not in after | {name} or any(heavy(plan[n]) for n in after):
        return ()
    others = {*plan.following.values(), *_closing(plan), *(e for e in ends if e != end)}
    if (after | {name}) & others or nx.descendants(plan.graph, end) & needed:
        return ()
    order = nx.topological_sort(plan.graph.subgraph(after))
    return (name, *order)


def _closing(plan: Plan) -> set[str]:
    """Return the quantities that are put in place at the ends of intervals, and all that they
    depend on."""
    moved = {name for moves in plan.closed.values() for name in moves.values()}
    return moved.union(*(nx.ancestors(plan.graph, name) for name in moved))


def _product(quantity: Quantity) -> Product | None:
    match quantity.op:
        case Product():
            return quantity.op
        case Fused(product=product):
            return product
        case _:
            return None


def _of_rows(plan: Plan, quantity: Quantity, product: Product) -> bool:
    """Return whether a product sums over rows, and its result has rows and channels."""
    rows, *channels = quantity.axes
    memories = (set(plan.axes(side)) <= CHANNELS for side in (product.left, product.right))
    return rows not in CHANNELS and set(channels) <= CHANNELS and not any(memories)


def condition(lay: Layout, tail: tuple[str, ...]) -> str:
    """Write the condition under which it pays to move the product to the end: it has more columns
    than rows."""
    return f"{ROWS} < B{lay.sizes(tail[0])[-1]}"


# -- plans of which a product can wait ---------------------------------------------------------


def split_sum(plan: Plan, tail: tuple[str, ...]) -> None:
    """Split the sum that contains the last product in two: the other terms, computed early, and
    their sum with it."""
    if len(tail) < 2:
        return
    (name, total), op = tail[:2], plan[tail[1]].op
    inner, axes = plan[name].op, plan[total].axes
    if not isinstance(op, Map) or not op.expr.is_Add or not isinstance(inner, Product):
        return
    own = [read for read in op.reads if read.quantity == name]
    reads = tuple(read for read in op.reads if read.quantity != name)
    if len(own) != 1 or own[0].axes != axes or all(read.axes != axes for read in reads):
        return
    symbol = next(s for s in op.expr.free_symbols if s.name == own[0].symbol)
    sign = {sp.Integer(1): 1, sp.Integer(-1): -1}.get(op.expr.coeff(symbol), 0)
    expr = op.expr - sign * symbol
    if not sign or expr.has(symbol):
        return
    rest = plan.add(f"{total}_before", axes, Map(expr, reads), plan[total].equation)
    plan.rewrite(replace(plan[total], op=Fused(rest, inner, sign)))


def memory_first(plan: Plan) -> Plan:
    """Return a plan in which what is read of a memory comes before what rows add to it."""
    found = replace(plan, graph=plan.graph.copy(), known=dict(plan.known))
    for quantity in plan.ordered():
        op = quantity.op
        if not isinstance(op, Fused) or op.sign < 0 or found.graph.out_degree(op.addend) > 1:
            continue
        added = found[op.addend]
        if not isinstance(added.op, Product) or found.is_end(op.addend):
            continue
        if _of_rows(found, quantity, op.product) or not _of_rows(found, added, added.op):
            continue
        read = found.add(f"{quantity.name}_before", quantity.axes, op.product, quantity.equation)
        found.rewrite(replace(quantity, op=Fused(read, added.op)))
    return found
