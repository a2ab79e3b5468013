"""Systems that are solved by what they do to a direction, without a matrix.

The plan holds A x as statements behind a quantity ``unknown``. With r = b − A x̂ at a fixed x̂ the
solution moves by A⁻¹ dr, so before the reverse pass r is written into the plan, and its gradient is
one more solution, of the same system (which is symmetric).
"""

from dataclasses import replace

import networkx as nx
import sympy as sp

from mnemic.codegen.cut import cut
from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import PAIRS, Operation, Streaming, Tile
from mnemic.codegen.plan import Call, Map, Plan, Quantity, Read, renamed_reads

B, A = sp.symbols("target_ image_", real=True)

STREAMED = frozenset({PAIRS})


def residuals(plan: Plan) -> Plan:
    """Return the plan in which every solution stands beside what is left of its system."""
    names = [q.name for q in plan.ordered() if _solves(q)]
    if not names:
        return plan
    found = cut(plan, ())
    for name in names:
        _with_residual(found, found[name])
    return found


def _solves(quantity: Quantity) -> bool:
    return isinstance(quantity.op, Call) and quantity.op.function == "solution"


def _with_residual(plan: Plan, x: Quantity) -> None:
    assert isinstance(x.op, Call)
    target, diagonal, unknown, image = x.op.arguments
    readers = [plan[n] for n in plan.graph.successors(x.name)]
    _forget(plan, {reader.name for reader in readers})
    reached = at_direction(plan, unknown, image, x.name)
    reads = (Read("target_", target, x.axes), Read("image_", reached, x.axes))
    rest = plan.add(f"{x.name}_rest", x.axes, Map(B - A, reads), x.equation)
    arguments = (x.name, rest, diagonal, unknown, image)
    op = Call("solution_with", arguments, x.op.options)
    whole = plan.add(f"{x.name}_found", x.axes, op, x.equation)
    for reader in readers:
        plan.rewrite(replace(reader, op=renamed_reads(reader.op, {x.name: whole})))


def _forget(plan: Plan, names: set[str]) -> None:
    """Drop quantities that will read something else from those known by what they read now."""
    for key in [key for key, name in plan.known.items() if name in names]:
        del plan.known[key]


def at_direction(plan: Plan, unknown: str, image: str, direction: str) -> str:
    """Compute A times another direction, by the statements behind the image; return its name."""
    between = nx.descendants(plan.graph, unknown) & (nx.ancestors(plan.graph, image) | {image})
    names = {unknown: direction}
    for name in nx.topological_sort(plan.graph.subgraph(between).copy()):
        quantity = plan[name]
        op = renamed_reads(quantity.op, names)
        names[name] = plan.add(f"{name}_at_{direction}", quantity.axes, op, quantity.equation)
    return names[image]


def solution_with(at: At) -> None:
    """Differentiate a solution at its residual r: dr = A⁻¹ d, by one more solution."""
    _, rest, diagonal, unknown, image = at.arguments
    if not at.wants(rest):
        return
    axes = at.quantity.axes
    moved = at.call(f"{at.d}_direction", axes, "unknown", at.d)
    reached = at_direction(at.plan, unknown, image, moved)
    at.give_call(rest, "solution", at.d, diagonal, moved, reached,
                 tolerance=at.option("tolerance"), iterations=at.option("iterations"))  # fmt: skip


# fmt: off
OPERATIONS = (
    Operation(
        "unknown", "~tk -> tk", tile=Tile(STREAMED, woven=True), in_pytorch=False, sample=None
    ),
    Operation(
        "solution", "~tk, ~tk, ~tk, ~tk -> tk", tile=Tile(STREAMED, woven=True),
        streaming=Streaming(costly=True), in_pytorch=False, sample=None,
    ),
    Operation(
        "solution_with", "~tk, tk, ~tk, ~tk, ~tk -> tk", adjoint=solution_with,
        tile=Tile(STREAMED, text="{0}"), streaming=Streaming(reads=(0,)), in_pytorch=False,
        sample=None,
    ),
)
# fmt: on
