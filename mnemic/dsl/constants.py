"""Evaluate the parts of an expression without symbols, before any derivation."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Final

from mnemic.dsl.expressions import Apply, Name, Node, Number, unparse
from mnemic.dsl.functions import CONSTANTS

BOUNDS: Final = frozenset({"max", "min", "neg", "lt", "le", "gt", "ge", "eq"})
"""What an infinity may stand in, being a bound there and no value."""


class Undefined(ValueError):
    """A part of an expression that is no finite real number, and why."""

    def __init__(self, part: Node, reason: str) -> None:
        super().__init__(reason)
        self.part = unparse(part)
        self.reason = reason


def constant(tree: Node) -> float | None:
    """Return the value of a tree without symbols; ``None`` for any other tree.

    Raises ``Undefined`` for a part, of any tree, that is no finite real number. Only ``inf`` by
    itself is infinite, and may stand in comparisons, ``max`` and ``min``.

    >>> from mnemic.dsl.expressions import parse
    >>> constant(parse("2*pi", "x").tree)
    6.283185307179586
    >>> constant(parse("2*x", "x").tree)
    """
    match tree:
        case Number(value):
            return float(value)
        case Name(word):
            return CONSTANTS.get(word)
        case Apply(function, arguments):
            return _applied(tree, function, [constant(a) for a in arguments])


def _applied(tree: Apply, function: str, values: list[float | None]) -> float | None:
    if function not in BOUNDS and any(z is not None and math.isinf(z) for z in values):
        raise Undefined(tree, "inf may stand in comparisons, max and min only")
    if function == "div" and values[1] == 0:
        raise Undefined(tree, "divides by zero")
    known = [z for z in values if z is not None]
    if len(known) < len(values):
        return None
    try:
        value = _FUNCTIONS[function](*known)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    except OverflowError:
        value = math.inf
    if isinstance(value, complex) or math.isnan(value):
        raise Undefined(tree, "is not a real number")
    if math.isinf(value) and function not in BOUNDS:
        raise Undefined(tree, "is not a finite number")
    return float(value)


def _sigmoid(x: float) -> float:
    return 0.5 * (1 + math.tanh(x / 2))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


_FUNCTIONS: Final[Mapping[str, Callable[..., float | complex]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
    "neg": operator.neg,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
    "where": lambda c, a, b: a if c else b,
    **{
        name: getattr(math, name)
        for name in (
            "exp", "log", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh",
            "atan", "asinh", "atanh", "erf",
        )
    },
    "abs": abs,
    "sign": lambda x: float((x > 0) - (x < 0)),
    "max": max,
    "min": min,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "logsigmoid": lambda x: -_softplus(-x),
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "heaviside": lambda x: (1 + (x > 0) - (x < 0)) / 2,
    "round": round,
    "square": lambda x: x * x,
    "logit": lambda x: math.log(x) - math.log1p(-x),
}  # fmt: skip
