"""The reverse pass over a plan's graph: from what a chunk gives to what it was given."""

from dataclasses import dataclass

import networkx as nx

from mnemic.codegen.adjoint.maps import through_map
from mnemic.codegen.adjoint.product_gradients import through_product
from mnemic.codegen.adjoint.unrolled import Unrolled, unrolled
from mnemic.codegen.derivative import NoAdjoint
from mnemic.codegen.emit import OUTPUT
from mnemic.codegen.ops import OPERATIONS, called
from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.gradient_sums import Sums
from mnemic.codegen.ops.solutions import residuals
from mnemic.codegen.plan import Call, Given, Map, Plan, Product, Quantity

INDICES = (
    "zero", "h_index", "t_index", "H_index", "first_index", "ends", "level_keeps", "level_writes",
)  # fmt: skip
"""Arguments that are the same whatever the inputs, so that no gradient goes through them."""


@dataclass(frozen=True)
class Adjoint:
    """The gradients of one chunk (or token), as a plan that goes from the last to the first.

    Given are the arguments, the states at the chunk's start, ``d_out`` (the gradient of its output)
    and ``closes_<every>`` (1 where an interval of so many tokens ends with the chunk, else 0).
    Carried is ``d_<state>``, the gradient of each state after the chunk; what follows it is the
    gradient before the chunk. ``gradients`` names the gradient of each argument's rows.
    """

    plan: Plan
    gradients: dict[str, str]
    states: tuple[str, ...]
    """The primal states that the plan is given as arguments."""
    carried: dict[str, str]
    """The carried gradient of each primal state."""


def adjoint(plan: Plan) -> Adjoint:
    """Run reverse mode on a plan, as it is before it is fused.

    Raises ``NoAdjoint`` where a function has no rule.
    """
    opened = unrolled(residuals(plan))
    found = opened.plan
    order = [found[name] for name in nx.lexicographical_topological_sort(
        found.graph, key=lambda name: found.graph.nodes[name]["index"])]  # fmt: skip
    sums = Sums(found, _active(opened, order))
    carried = _seed(opened, sums)
    for quantity in reversed(order):
        total = sums.total(quantity.name) if quantity.name in sums.active else None
        if total is not None:
            _through(At(sums, quantity, total, called(quantity)))
    for state, gradient in carried.items():
        found.following[gradient] = sums.totals.get(state) or _nothing(found, state)
    givens = [q.name for q in order if q.op == Given() and q.name not in opened.states]
    gradients = {name: sums.totals[name] for name in givens if name in sums.totals}
    found.results.update(gradients)
    _prune(found, opened, carried)
    return Adjoint(found, gradients, opened.states, carried)


def _active(opened: Unrolled, order: list[Quantity]) -> set[str]:
    """Return the quantities that need a gradient: they depend on what is given, and an end depends
    on them."""
    constant = {*INDICES, *opened.closes}
    depends: set[str] = set()
    for quantity in order:
        if isinstance(quantity.op, Given):
            moves = quantity.name not in constant
        else:
            moves = any(name in depends for name in differentiated(quantity))
        if moves:
            depends.add(quantity.name)
    reaches = set(opened.ends.values())
    for quantity in reversed(order):
        if quantity.name in reaches:
            reaches.update(differentiated(quantity))
    return depends & reaches


def differentiated(quantity: Quantity) -> tuple[str, ...]:
    """Return what a quantity reads, without arguments that only give it a shape or a place."""
    match quantity.op:
        case Call(function=function, arguments=arguments) if function in OPERATIONS:
            return OPERATIONS[function].differentiated(arguments)
        case _:
            return quantity.reads()


def _seed(opened: Unrolled, sums: Sums) -> dict[str, str]:
    """Declare the gradients that come in: of the output, and of every state after the chunk."""
    plan, carried = opened.plan, {}
    sums.count(opened.ends.values())
    if OUTPUT in opened.ends:
        output = opened.ends[OUTPUT]
        sums.give(output, _given(plan, "d_out", plan.axes(output), state=False))
    for state in opened.states:
        gradient = _given(plan, f"d_{state}", plan.axes(state), state=True)
        carried[state] = gradient
        sums.give(opened.ends[state], gradient)
    return carried


def _given(plan: Plan, name: str, axes: tuple[str, ...], *, state: bool) -> str:
    while name in plan.graph:
        name += "_"
    return plan.given(name, axes, state=state)


def _through(at: At) -> None:
    """Give the arguments of one quantity their gradients; raise ``NoAdjoint`` without a rule."""
    match at.quantity.op:
        case Map():
            through_map(at)
        case Product():
            through_product(at)
        case Call(function=function):
            if at.operation is None or at.operation.adjoint is None:
                raise NoAdjoint(function)
            at.operation.adjoint(at)


def _nothing(plan: Plan, state: str) -> str:
    """Plan the gradient, zero, of a state that nothing depends on."""
    op = Call("filled", (state,), (("value", 0.0),))
    return plan.add(f"no_{state}", plan.axes(state), op)


def _prune(plan: Plan, opened: Unrolled, carried: dict[str, str]) -> None:
    """Forget what no gradient needs."""
    plan.keep(plan.needed() | set(opened.states) | set(carried.values()))
