"""What PyTorch computes of the arguments before a kernel, cut off from the plan."""

from dataclasses import dataclass

from mnemic.codegen.cut import cut as cut_at
from mnemic.codegen.ops import called
from mnemic.codegen.plan import Given, Plan, Quantity


@dataclass(frozen=True)
class Cut:
    """A plan for tiles, and what stands before it: functions of single tokens."""

    plan: Plan
    before: tuple[Quantity, ...]
    taken: tuple[str, ...]
    """The form's arguments that either part reads."""


def cut(plan: Plan, form: str, also: tuple[str, ...] = ()) -> Cut:
    """Give what no tile computes as an argument, where it takes each token by itself.

    ``form`` is the kind of the plan, ``also`` are quantities that are to be arguments in any case.
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
