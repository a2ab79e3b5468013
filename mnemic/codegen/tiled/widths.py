"""A plan in one dtype: kernels keep the dtype of their tiles throughout."""

from mnemic.codegen.plan import Call, Plan
from mnemic.codegen.tiled.windows import renamed

CASTS = ("widened", "narrowed")


def uniform(plan: Plan) -> Plan:
    """Return the plan without its casts: what reads a cast reads its first argument instead."""
    casts: dict[str, str] = {}
    for name in plan.graph:
        match plan[name].op:
            case Call(function=function, arguments=(given, *_)) if function in CASTS:
                casts[name] = casts.get(given, given)
    return renamed(plan, casts, {}) if casts else plan
