"""A plan cut at some of its quantities: they become arguments, computed elsewhere."""

from collections.abc import Collection

from mnemic.codegen.plan import Given, Plan, Quantity


def cut(plan: Plan, names: Collection[str]) -> Plan:
    """Return the plan in which the named quantities are given, by row, with their own axes.

    The gradients at them are what a gradient outside of the plan goes on from.
    """
    found = plan.emptied()
    found.graph = plan.graph.copy()
    for name in names:
        found.rewrite(Quantity(name, plan.axes(name), Given(), plan[name].equation))
    found.known |= {key: name for key, name in plan.known.items() if name not in names}
    found.keep(found.needed() | set(plan.states()))
    return found
