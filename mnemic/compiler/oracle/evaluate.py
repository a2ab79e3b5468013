"""Evaluate a SymPy expression in torch by walking its tree, slowly, for the oracle only.

This shares no code with the printers of the code generator. Branches of a ``Piecewise`` that are
not taken get harmless numbers, so that their infinities reach neither the value nor the gradient.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import sympy as sp
import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.implicit import PLACE, NewErrorBase, steep
from mnemic.compiler.oracle.reference_implicit import new_error, slope_at

Environment: TypeAlias = Mapping[sp.Symbol, Tensor]

FUNCTIONS: Final[Mapping[Any, Callable[..., Tensor]]] = {
    sp.exp: torch.exp,
    sp.log: torch.log,
    sp.Abs: torch.abs,
    sp.sign: torch.sign,
    sp.sin: torch.sin,
    sp.cos: torch.cos,
    sp.tan: torch.tan,
    sp.atan: torch.atan,
    sp.asin: torch.asin,
    sp.acos: torch.acos,
    sp.sinh: torch.sinh,
    sp.cosh: torch.cosh,
    sp.tanh: torch.tanh,
    sp.asinh: torch.asinh,
    sp.acosh: torch.acosh,
    sp.atanh: torch.atanh,
    sym.expm1: torch.expm1,
    sp.erf: torch.erf,
    sp.erfinv: torch.erfinv,
    sp.floor: torch.floor,
    sp.ceiling: torch.ceil,
    sym.sigmoid: torch.sigmoid,
    sym.softplus: lambda z: torch.logaddexp(z, torch.zeros_like(z)),
    sym.normal_cdf: torch.special.ndtr,
    sp.Heaviside: lambda z, *_: (1 + torch.sign(z)) / 2,
}
"""SymPy's functions of one argument and ours."""

RELATIONS: Final[Mapping[Any, Callable[[Tensor, Tensor], Tensor]]] = {
    sp.StrictLessThan: torch.lt,
    sp.LessThan: torch.le,
    sp.StrictGreaterThan: torch.gt,
    sp.GreaterThan: torch.ge,
    sp.Equality: torch.eq,
    sp.Unequality: torch.ne,
}


class NoMeaning(Exception):
    """Raised for a node of an expression that `evaluate` does not support."""


def evaluate(expression: Any, values: Environment) -> Tensor:
    """Return the expression in float64, its symbols replaced by tensors that broadcast.

    >>> evaluate(sym.e**2 / 2, {sym.e: torch.tensor(3.0, dtype=torch.float64)})
    tensor(4.5000, dtype=torch.float64)
    """
    node = sp.sympify(expression)
    if isinstance(node, sp.Symbol):
        return values[node]
    if node.is_number and not node.has(sp.Function):
        return torch.tensor(_number(node), dtype=torch.float64)
    if isinstance(node, NewErrorBase):
        return _new_error(node, [evaluate(a, values) for a in node.args])
    if isinstance(node, sp.Pow):
        return _power(node, values)
    if isinstance(node, sp.Piecewise):
        return _piecewise(node, values)
    return _apply(node, [evaluate(a, values) for a in node.args])


def _new_error(node: Any, arguments: list[Tensor]) -> Tensor:
    """Solve s = e(ŷ − c s), with e evaluated by ``evaluate``."""
    y, c, *rest = torch.broadcast_tensors(*arguments)  # type: ignore[no-untyped-call]
    held = dict(zip(node.holders, rest, strict=True))
    return new_error(lambda u: evaluate(node.signal, {**held, PLACE: u}) + 0 * u, y, c)


def condition(node: Any, values: Environment) -> Tensor:
    """Return a truth value, entry by entry."""
    if node in (sp.true, sp.false):
        return torch.tensor(node == sp.true)
    if type(node) in RELATIONS:
        left, right = (evaluate(a, values) for a in node.args)
        return RELATIONS[type(node)](left, right)
    inner = [condition(a, values) for a in node.args]
    if isinstance(node, sp.Not):
        return ~inner[0]
    if isinstance(node, sp.And | sp.Or):
        join = torch.logical_and if isinstance(node, sp.And) else torch.logical_or
        result = inner[0]
        for other in inner[1:]:
            result = join(result, other)
        return result
    raise NoMeaning(f"no meaning for the condition {node}")


def _number(node: Any) -> float:
    if node == sp.oo:
        return math.inf
    return -math.inf if node == -sp.oo else float(node)


def _power(node: Any, values: Environment) -> Tensor:
    base = evaluate(node.base, values)
    if node.exp.is_Integer:
        return base ** int(node.exp)
    if node.exp == sp.Rational(1, 2):
        return torch.sqrt(base)
    return torch.pow(base, evaluate(node.exp, values))


def _piecewise(node: Any, values: Environment) -> Tensor:
    """Take the first branch whose condition holds; elsewhere symbols stand at a harmless point."""
    result: Tensor | None = None
    done = torch.tensor(False)
    for branch, test in node.args:
        taken = condition(test, values) & ~done
        done = done | taken
        if not bool(taken.any()):
            continue
        value = evaluate(branch, _only_where(taken, values, branch.free_symbols))
        zero = torch.zeros((), dtype=value.dtype)
        part = torch.where(taken, value, zero)
        result = part if result is None else result + part
    if result is None or not bool(done.all()):
        raise NoMeaning(f"no branch of {node} holds everywhere")
    return result


def _only_where(taken: Tensor, values: Environment, names: set[sp.Symbol]) -> dict[Any, Tensor]:
    safe = {name: 0.31 + 0.17 * i for i, name in enumerate(sorted(names, key=str))}
    return {
        name: torch.where(taken, values[name], torch.tensor(point, dtype=torch.float64))
        for name, point in safe.items()
    }


def _apply(node: Any, arguments: list[Tensor]) -> Tensor:
    if isinstance(node, sp.Add):
        return sum(arguments[1:], arguments[0])
    if isinstance(node, sp.Mul):
        return math.prod(arguments[1:], start=arguments[0])
    if isinstance(node, sp.Max | sp.Min):
        return _extreme(torch.maximum if isinstance(node, sp.Max) else torch.minimum, arguments)
    if isinstance(node, steep):
        return slope_at(*arguments)
    if type(node) in FUNCTIONS:
        return FUNCTIONS[type(node)](*arguments)
    if isinstance(node, sym.round):
        return arguments[0] + (torch.round(arguments[0]) - arguments[0]).detach()
    raise NoMeaning(f"no meaning for {type(node).__name__} in {node}")


def _extreme(pick: Callable[[Tensor, Tensor], Tensor], arguments: list[Tensor]) -> Tensor:
    result = arguments[0]
    for other in arguments[1:]:
        result = pick(result, other)
    return result
