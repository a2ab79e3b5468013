"""A chunk's own entries of quantities that are computed from kept pairs.

Memory holds the entries of states only. Where a gradient reads the chunk's entries of a sum (or any
other expression) of several, they are taken of each, and the expression is computed from the rows.
"""

from dataclasses import replace

from mnemic.codegen.plan import Call, Map, Plan, Quantity, Read


def split_into_entries(plan: Plan) -> Plan:
    """Return a plan that reads, behind kept pairs, only the chunk's own entries of states."""
    found = plan.emptied()
    found.graph = plan.graph.copy()
    for quantity in plan.ordered():
        match quantity.op:
            case Call(function="rows_behind", arguments=(whole, like)):
                op = _of_rows(found, quantity, whole, like)
                if op is not None:
                    found.rewrite(replace(quantity, op=op))
            case _:
                continue
    return found


def _of_rows(plan: Plan, quantity: Quantity, whole: str, like: str) -> Map | None:
    """Make an expression of the chunk's own entries of what it reads; ``None`` where it is none."""
    expression = plan[whole].op
    if not isinstance(expression, Map):
        return None
    row = quantity.axes[0]
    reads = []
    for read in expression.reads:
        axes = tuple(row if axis == "n" else axis for axis in read.axes)
        name = read.quantity
        if "n" in read.axes:
            name = _entries(plan, read, axes, like, quantity.equation)
        reads.append(Read(read.symbol, name, axes))
    return Map(expression.expr, tuple(reads))


def _entries(plan: Plan, read: Read, axes: tuple[str, ...], like: str, equation: str) -> str:
    name = f"{read.quantity}_behind"
    call = Call("rows_behind", (read.quantity, like))
    found = plan.add(name, axes, call, equation)
    op = _of_rows(plan, plan[found], read.quantity, like)
    if op is not None:
        plan.rewrite(replace(plan[found], op=op))
    return found
