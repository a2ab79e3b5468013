"""The part of a plan that PyTorch computes before a kernel runs, split off from it."""

from dataclasses import dataclass

from mnemic.codegen.cut import cut as cut_at
from mnemic.codegen.ops import called
from mnemic.codegen.plan import Given, Plan, Quantity


@dataclass(frozen=True)
class Cut:
    """A plan for tiles, and the functions of single tokens that are computed before it."""

    plan: Plan
    before: tuple[Quantity, ...]
    taken: tuple[str, ...]
    """The form's arguments that either part reads."""


def cut(plan: Plan, form: str, also: tuple[str, ...] = ()) -> Cut:
    """Turn quantities that no tile can compute into arguments, if they take each token by itself.

    ``form`` is the kind of the plan; the quantities ``also`` become arguments in any case.
    """
    outside: set[str] = set()
    for name in also:
        if not isinstance(plan[name].op, Given):
            outside |= _behind(plan, name)
    for quantity in plan.phases().before:
        operation = called(quantity)
        if operation and operation.by_token and not operation.on_tiles(form):
            outside |= _behind(plan, quantity.name)
    before = tuple(q for q in plan.ordered() if q.name in outside)
    found = cut_at(plan, [quantity.name for quantity in before])
    taken = tuple(
        name for name in plan.arguments()
        if name in found.arguments() or any(name in q.reads() for q in before)
    )  # fmt: skip
    return Cut(found, before, taken)


def _behind(plan: Plan, name: str) -> set[str]:
    found = {name}
    for read in plan[name].reads():
        if not isinstance(plan[read].op, Given):
            found |= _behind(plan, read)
    return found
