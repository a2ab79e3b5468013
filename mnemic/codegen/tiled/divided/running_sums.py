"""Sums of products as running sums: x + A B + C D → (x + A B) + C D.

Each product has what was summed before as its accumulator, so that one tile is alive where there
would be one for each product until all are there.
"""

from dataclasses import replace
from typing import Any

import sympy as sp

from mnemic.codegen.plan import Fused, Map, Plan, Product, Quantity, Read
from mnemic.codegen.tiled.divided.value_blocks import Values
from mnemic.codegen.tiled.layout import Layout


def running_sums(lay: Layout) -> Plan:
    """Return the plan in which products that nothing else reads are added to a running sum; those
    that are sums over values are added up elsewhere."""
    plan, values = lay.plan, Values.of(lay)
    if values is None:
        return plan
    found = plan.emptied()
    found.graph, found.known = plan.graph.copy(), dict(plan.known)
    for quantity in plan.ordered():
        if isinstance(quantity.op, Map) and quantity.op.expr.is_Add:
            _rewrite(found, values, quantity, quantity.op)
    found.keep(
        found.needed() | {*plan.states(), *plan.arguments(), *(held.name for held in lay.given)}
    )
    return found


def _rewrite(plan: Plan, values: Values, quantity: Quantity, op: Map) -> None:
    terms = [
        (read, sign, product)
        for read in op.reads
        if (sign := _sign(op.expr, read)) and (product := _alone(plan, values, quantity, read))
    ]
    own = {read.symbol for read, _, _ in terms}
    others = tuple(read for read in op.reads if read.symbol not in own)
    rest = op.expr - sp.Add(*(sign * _symbol(op.expr, read) for read, sign, _ in terms))
    if not others and (plus := next((term for term in terms if term[1] > 0), None)):
        terms.remove(plus)
        total = plus[0].quantity
    elif any(read.axes == quantity.axes for read in others):
        total = _rest(plan, quantity, rest, others)
    else:
        return
    for number, (_, sign, product) in enumerate(terms, 1 - len(terms)):
        added = Fused(total, product, sign)
        if number:
            name = f"{quantity.name}_with_{product.left}"
            total = plan.add(name, quantity.axes, added, quantity.equation)
        else:
            plan.rewrite(replace(quantity, op=added))


def _rest(plan: Plan, quantity: Quantity, rest: Any, reads: tuple[Read, ...]) -> str:
    """Return the name of what stands before the products: what alone is read, or a new quantity."""
    if len(reads) == 1 and rest == _symbol(rest, reads[0]):
        return reads[0].quantity
    return plan.add(f"{quantity.name}_before", quantity.axes, Map(rest, reads), quantity.equation)


def _symbol(expr: Any, read: Read) -> Any:
    return next((s for s in expr.free_symbols if s.name == read.symbol), sp.Integer(0))


def _sign(expr: Any, read: Read) -> int:
    """Return 1 or -1, where the expression is that times what is read plus a rest, otherwise 0."""
    symbol = _symbol(expr, read)
    sign = {sp.Integer(1): 1, sp.Integer(-1): -1}.get(expr.coeff(symbol), 0)
    return 0 if (expr - sign * symbol).has(symbol) else sign


def _alone(plan: Plan, values: Values, quantity: Quantity, read: Read) -> Product | None:
    """Return the product that is read, if nothing else reads it and it is not a sum over values."""
    found = plan[read.quantity]
    whole = read.axes == quantity.axes and plan.graph.out_degree(read.quantity) == 1
    if not whole or plan.is_end(read.quantity) or values.begins(found):
        return None
    return found.op if isinstance(found.op, Product) else None
