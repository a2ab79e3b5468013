"""The values that coefficients take under their activations."""

import math
from collections.abc import Iterable
from typing import Any

from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import sampler
from mnemic.compiler.problem import Scalar
from mnemic.compiler.symbolic import read
from mnemic.dsl import texts
from mnemic.dsl.starts import start_of

GRID = (-30.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 30.0)
"""Arguments of an activation; its values there span its range, the outermost as limits."""
FARTHEST = 30
"""From this size on an activation's value at the end of the grid is taken for infinite."""


def ranges_of(scalars: Iterable[Scalar]) -> dict[Any, list[float]]:
    """Return the values that each argument takes under its activation, or the layer's own."""
    found = {}
    for scalar in scalars:
        if scalar.argument is not None:
            shape = activation_of(scalar.declared.activation, scalar.name)
            values = map(sampler(shape, [sym.x]), GRID)
            found[scalar.symbol] = [v for v in values if v is not None]
    return found


def spans_of(scalars: Iterable[Scalar]) -> dict[str, tuple[float, float]]:
    """Return the interval in which each argument lies under its activation, by its name."""
    return {str(s): span(x) for s, x in ranges_of(scalars).items() if len({*x}) > 1}


def span(values: list[float]) -> tuple[float, float]:
    """Return the interval that an activation's values span, the outermost as limits."""
    low, high = (round(x, 6) for x in (min(values), max(values)))
    return _end(low), _end(high)


def _end(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= FARTHEST else value


def activation_of(activation: str | None, name: str = "") -> Any:
    """Return an activation's expression in x; by default that of the coefficient's name."""
    written = activation or start_of(name)[0]
    return read(texts.activation(written), {"x": sym.x})
