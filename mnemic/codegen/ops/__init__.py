"""Every operation that a plan can call, by name."""

from mnemic.codegen.ops import (
    decays,
    errors,
    factors,
    features,
    fits,
    maxima,
    norms,
    pairs,
    products,
    pulled,
    row_matrices,
    scores,
    shifts,
    simplices,
    solutions,
    sums,
    tree_levels,
    triangles,
    weights,
    whole_memories,
    window_rows,
)
from mnemic.codegen.ops.operation import Operation
from mnemic.codegen.plan import Call, Quantity

FAMILIES = (
    products, sums, norms, decays, maxima, triangles, shifts, scores, errors, whole_memories,
    simplices, row_matrices, window_rows, features, factors, pairs, weights, solutions, fits,
    tree_levels, pulled,
)  # fmt: skip

OPERATIONS: dict[str, Operation] = {}
"""Every operation by its name."""


def add(operation: Operation) -> None:
    """Add an operation, so that plans can call it by its name.

    Raises ``ValueError`` where there is another one of that name.
    """
    if OPERATIONS.setdefault(operation.name, operation) is not operation:
        raise ValueError(f"there are two operations '{operation.name}'")


def called(quantity: Quantity) -> Operation | None:
    """Return the operation that a quantity calls; ``None`` where it calls none."""
    return OPERATIONS.get(quantity.op.function) if isinstance(quantity.op, Call) else None


for family in FAMILIES:
    operations: tuple[Operation, ...] = family.OPERATIONS
    for found in operations:
        add(found)
