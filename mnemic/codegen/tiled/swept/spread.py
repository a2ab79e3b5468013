"""Operations on whole memories as sums and maxima over entries, which blocks can be joined by.

For kernels that see a block of a memory at a time: ‖A‖_p from its largest entry and the sum of
powers, softmax from the highest exponent and the sum of exponentials, norms of rows from sums of
squares. A number that is as a memory is (its type, its device) is that number.
"""

from dataclasses import replace

from mnemic.codegen.ops import called
from mnemic.codegen.ops.entries import Entries
from mnemic.codegen.plan import Plan
from mnemic.codegen.tiled.layout import Layout


def spread(lay: Layout, along: tuple[str, ...]) -> Plan:
    """Rewrite functions of whole memories in a copy of a layout's plan as sums and maxima over
    entries; return the plan itself where no such function takes a memory with a swept axis."""
    plan = lay.plan
    found = [
        (q.name, operation.by_entries) for q in plan.ordered()
        if (operation := called(q)) and operation.by_entries
        and set(lay.sizes(q.reads()[0])) & set(along)
    ]  # fmt: skip
    if not found:
        return plan
    copied = replace(plan, graph=plan.graph.copy(), known=dict(plan.known))
    for name, write in found:
        write(Entries(copied, copied[name]))
    return copied
