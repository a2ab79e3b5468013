"""A spec's own coefficients under names that no generated code uses itself.

A person may call a coefficient ``zero``, ``torch`` or ``chunk``. In forms and kernels it is
``own_zero``; the operator and the layer take it by its own name.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.problem import Scalar
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec

PREFIX = "own_"
LOG = "log_"

Names = Mapping[sp.Symbol, sp.Symbol]


def rename_own_coefficients(rule: Rule) -> Rule:
    """Return the rule with its spec's own coefficients under names of their own.

    Names with a meaning of their own in the compiler (a rate called η) stay.
    """
    own = {s.name for s in rule.scalars if s.name in rule.problem.spec.coefficients}
    names = {sym.coefficient(n): sym.coefficient(PREFIX + n) for n in own - sym.NONNEGATIVE}
    found: Rule = _renamed(rule, names) if names else rule
    return found


def public(argument: str) -> str:
    """Return the operator's name of a form's argument.

    >>> [public(name) for name in ("own_zero", "log_own_zero", "eta", "log_alpha")]
    ['zero', 'log_zero', 'eta', 'log_alpha']
    """
    log = LOG if argument.startswith(LOG) else ""
    return log + argument.removeprefix(log).removeprefix(PREFIX)


def _renamed(item: Any, names: Names) -> Any:
    """Replace symbols in a rule or a part of it, wherever they stand."""
    match item:
        case Spec():
            return item
        case Scalar() if item.symbol in names:
            new = names[item.symbol].name
            argument = item.argument and (LOG if item.logarithmic else "") + new
            return replace(item, name=new, argument=argument, expr=_renamed(item.expr, names))
        case sp.Basic() | sp.MatrixBase():
            return item.xreplace(names)
        case tuple():
            return tuple(_renamed(part, names) for part in item)
        case dict():
            return {_renamed(k, names): _renamed(part, names) for k, part in item.items()}
        case _ if is_dataclass(item) and not isinstance(item, type):
            parts = {f.name: getattr(item, f.name) for f in fields(item) if f.init}
            return replace(item, **{n: _renamed(part, names) for n, part in parts.items()})
    return item
