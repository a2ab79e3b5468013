"""The values that coefficients take under their activations."""

from collections.abc import Iterable
from typing import Any

from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import sampler
from mnemic.compiler.problem import HEAD, HEADS, TIME, Scalar
from mnemic.compiler.rule import Rule
from mnemic.compiler.symbolic import read
from mnemic.dsl import texts
from mnemic.dsl.starts import DEFAULTS, OTHERWISE

GRID = (-30.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 30.0)
"""Arguments of an activation; its values there span its range, the outermost as limits."""

PLACES = {HEAD: [0.0, 1.0, 3.0, 7.0], HEADS: [8.0], TIME: [0.0, 1.0, 9.0, 999.0]}
"""Heads, their number and steps at which an expression of them is looked at."""

INFINITE = 29.9
"""From here on a value at the grid's end counts as growing without end."""


def ranges(rule: Rule) -> dict[Any, list[float]]:
    """Values that each argument takes under its activation (the layer's own unless told)."""
    return ranges_of(rule.scalars)


def ranges_of(scalars: Iterable[Scalar]) -> dict[Any, list[float]]:
    """The same of coefficients without a rule."""
    found = {}
    for scalar in scalars:
        if scalar.argument is not None:
            shape = activation_of(scalar.declared.activation, scalar.name)
            values = map(sampler(shape, [sym.x]), GRID)
            found[scalar.symbol] = [v for v in values if v is not None]
    return found


def activation_of(activation: str | None, name: str = "") -> Any:
    """An activation's expression in x; by default that of the coefficient's name."""
    written = activation or DEFAULTS.get(name, OTHERWISE)[0]
    return read(texts.activation(written), {"x": sym.x})


def span(values: list[float]) -> str:
    """The range that values span, as an open interval.

    >>> span([0.0, 0.5, 2.0])
    '(0, 2)'
    """
    if not values:
        return "any"
    low, high = min(values), max(values)
    left = "-∞" if low <= -INFINITE else f"{round(low, 6):g}"
    right = "∞" if high >= INFINITE else f"{round(high, 6):g}"
    return f"({left}, {right})".replace("-", "−")
