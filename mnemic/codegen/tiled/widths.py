"""A plan in one dtype: kernels keep the dtype of their tiles throughout."""

from mnemic.codegen.ops import called
from mnemic.codegen.plan import Plan
from mnemic.codegen.tiled.windows import renamed


def uniform(plan: Plan) -> Plan:
    """Return the plan without its casts: what reads a cast reads its first argument instead."""
    casts: dict[str, str] = {}
    for name in plan.graph:
        operation = called(plan[name])
        if operation and operation.casts:
            given = plan[name].reads()[0]
            casts[name] = casts.get(given, given)
    return renamed(plan, casts, {}) if casts else plan
