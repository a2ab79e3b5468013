"""The closed list of what an expression may use: functions, operators, constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Function:
    """A named function: how many arguments it takes, and what it means."""

    name: str
    meaning: str
    least: int = 1
    most: int = 1

    @property
    def arity(self) -> str:
        """The number of arguments in words, for an error message."""
        if self.least != self.most:
            return f"{self.least} to {self.most} arguments"
        return "1 argument" if self.least == 1 else f"{self.least} arguments"


@dataclass(frozen=True)
class Operator:
    """An operator: its name in the tree, how it is written, how tightly it binds.

    ``left`` and ``right`` are the least precedence that an operand needs to stand
    there without parentheses.
    """

    name: str
    symbol: str
    precedence: int
    left: int
    right: int


OR, AND, COMPARISON, SUM, PRODUCT, UNARY, POWER, ATOM = range(8)

FUNCTIONS: Final[Mapping[str, Function]] = {
    function.name: function
    for function in (
        Function("exp", "e to the power x"),
        Function("log", "natural logarithm"),
        Function("log1p", "log(1 + x)"),
        Function("expm1", "exp(x) - 1"),
        Function("sqrt", "square root"),
        Function("abs", "absolute value"),
        Function("sign", "-1, 0 or 1"),
        Function("max", "the largest argument", 2, 8),
        Function("min", "the smallest argument", 2, 8),
        Function("sin", "sine"),
        Function("cos", "cosine"),
        Function("tan", "tangent"),
        Function("tanh", "hyperbolic tangent"),
        Function("sinh", "hyperbolic sine"),
        Function("cosh", "hyperbolic cosine"),
        Function("atan", "inverse tangent"),
        Function("asinh", "inverse hyperbolic sine"),
        Function("atanh", "inverse hyperbolic tangent, of x between -1 and 1"),
        Function("sigmoid", "1/(1 + exp(-x))"),
        Function("softplus", "log(1 + exp(x))"),
        Function("logsigmoid", "-log(1 + exp(-x))"),
        Function("relu", "max(x, 0)"),
        Function("silu", "x*sigmoid(x)"),
        Function("gelu", "x*(1 + erf(x/sqrt(2)))/2"),
        Function("erf", "error function"),
        Function("heaviside", "0 below zero, 1/2 at it, 1 above"),
        Function("round", "the nearest integer, ties to even; its gradient is that of x"),
        Function("where", "where(condition, a, b): a where the condition holds, else b", 3, 3),
        Function("square", "x**2"),
        Function("logit", "log(x/(1 - x)), the inverse of sigmoid"),
    )
}

OPERATORS: Final[Mapping[str, Operator]] = {
    operator.name: operator
    for operator in (
        Operator("or", " or ", OR, OR, AND),
        Operator("and", " and ", AND, AND, COMPARISON),
        Operator("lt", " < ", COMPARISON, SUM, SUM),
        Operator("le", " <= ", COMPARISON, SUM, SUM),
        Operator("gt", " > ", COMPARISON, SUM, SUM),
        Operator("ge", " >= ", COMPARISON, SUM, SUM),
        Operator("eq", " == ", COMPARISON, SUM, SUM),
        Operator("add", " + ", SUM, SUM, PRODUCT),
        Operator("sub", " - ", SUM, SUM, PRODUCT),
        Operator("mul", "*", PRODUCT, PRODUCT, UNARY),
        Operator("div", "/", PRODUCT, PRODUCT, UNARY),
        Operator("neg", "-", UNARY, UNARY, UNARY),
        Operator("pow", "**", POWER, ATOM, UNARY),
    )
}

CONSTANTS: Final[Mapping[str, float]] = {"pi": math.pi, "inf": math.inf}
