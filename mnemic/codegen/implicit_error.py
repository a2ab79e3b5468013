"""The error at a new prediction as a function of the generated module."""

from itertools import count
from typing import Any

import sympy as sp
from sympy.logic.boolalg import BooleanFunction

from mnemic.codegen.plan import Plan
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler.explain.printing import text
from mnemic.compiler.implicit import PLACE, ROOT, roots_of

NEW_ERROR = '''def new_error({parameters}):
    """The error at the new prediction: the root of {equation}, u = y − c·s."""
    return ops.new_error(
        {parameters}, jumps={jumps},
        error={error},
        slope={slope},
    )
'''


def declare_roots(plan: Plan, expr: Any) -> None:
    """Declare the function behind an error at the new prediction, where an expression has one."""
    for root in roots_of(expr):
        names = ["y", "c", *(holder.name for holder in root.holders)]
        inner = ", ".join([PLACE.name, *names[2:]])
        plan.functions["new_error"] = NEW_ERROR.format(
            parameters=", ".join(names),
            equation=text(sp.Eq(ROOT, root.signal, evaluate=False)),
            jumps=root.jumps,
            error=f"lambda {inner}: {print_torch(root.signal, {})}",
            slope=f"lambda {inner}: {print_torch(root.slope, {})}",
        )


def at_roots(*expressions: Any) -> tuple[str, list[Any]]:
    """Return the root and what recurs as statements, and the expressions in terms of them."""
    roots = {root: sp.Symbol("s", real=True) for z in expressions for root in roots_of(z)}
    if not roots:
        return "", list(expressions)
    named = [sp.sympify(z).xreplace(roots) for z in expressions]
    parts, short = sp.cse(named, symbols=(sp.Symbol(f"part{i}", real=True) for i in count()))
    parts, short = _conditions_in_place(parts, short)
    lines = [(name, root) for root, name in roots.items()] + parts
    printed = [f"    {name} = {print_torch(expr, {})}\n" for name, expr in lines]
    return "".join(printed), short


def _conditions_in_place(parts: Any, short: list[Any]) -> tuple[list[Any], list[Any]]:
    """Put conditions where they are asked: a branch is printed by the numbers in its condition."""
    conditions: dict[Any, Any] = {}
    kept = []
    for name, expr in parts:
        whole = expr.xreplace(conditions)
        if isinstance(whole, sp.Rel | BooleanFunction):
            conditions[name] = whole
        else:
            kept.append((name, whole))
    return kept, [z.xreplace(conditions) for z in short]
