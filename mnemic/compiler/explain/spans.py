"""The values that coefficients take under their activations."""

from typing import Any

from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import sampler
from mnemic.compiler.rule import Rule
from mnemic.compiler.symbolic import read

GRID = (-30.0, -2.0, 0.0, 2.0, 30.0)
"""Arguments of an activation; its values there span its range."""


def ranges(rule: Rule) -> dict[Any, list[float]]:
    """Values that each argument takes under its activation (a sigmoid unless told)."""
    found = {}
    for scalar in rule.scalars:
        if scalar.argument is not None:
            shape = activation_of(scalar.declared.activation)
            values = map(sampler(shape, [sym.x]), GRID)
            found[scalar.symbol] = [v for v in values if v is not None]
    return found


def activation_of(activation: str | None) -> Any:
    """An activation's expression in x."""
    written = activation or "sigmoid"
    return read(written if "x" in written.replace("exp", "") else f"{written}(x)", {"x": sym.x})
