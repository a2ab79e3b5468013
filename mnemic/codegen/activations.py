"""Activations: printed as PyTorch, their stable logarithms, and where a value is reached."""

import math
from itertools import pairwise
from typing import Any

import sympy as sp

from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import sampler
from mnemic.compiler.symbolic import read
from mnemic.dsl.texts import activation

NAMED = {"silu": "F.silu", "gelu": "F.gelu", "relu": "F.relu", "sigmoid": "torch.sigmoid"}
"""Activations that PyTorch has whole, by their text."""

FARTHEST, STEP = 40.0, 0.25
"""Where values of an activation are looked for: |x| up to the first, in steps of the second."""


logsigmoid: Any = sp.Function("logsigmoid")
"""log σ(x), printed as PyTorch's stable one."""

_A = sp.Wild("A")
LOGARITHMS: tuple[tuple[Any, Any], ...] = (
    (sp.log(sym.sigmoid(_A)), logsigmoid(_A)),
    (sp.log(1 - sym.sigmoid(_A)), logsigmoid(-_A)),
)
"""Each pair is one rule, left to right: logarithms that lose digits, and what does not."""


def expression(text: str) -> Any:
    """Return an activation, given as text, as an expression in x."""
    return read(activation(text), {"x": sym.x})


def as_function(text: str) -> str:
    """Return the source of a function of one tensor that computes an activation."""
    short = activation(text).removesuffix("(x)")
    return NAMED.get(short, f"lambda x: {print_torch(expression(text), {})}")


def logarithm(expr: Any) -> Any:
    """Return log of a positive expression, taken inside as far as it goes."""
    found = sp.expand_log(sp.log(expr), force=True)
    for pattern, result in LOGARITHMS:
        found = found.replace(pattern, result)
    return found


def reached(expr: Any, value: float) -> float | None:
    """Find the x nearest to 0, |x| ≤ ``FARTHEST``, where an activation has a value, or ``None``."""
    sampled = sampler(expr, [sym.x])

    def gap(x: float) -> float:
        found = sampled(x)
        return math.nan if found is None else found - value

    steps = [STEP * i for i in range(round(FARTHEST / STEP) + 1)]
    brackets = [(s * a, s * b) for a, b in pairwise(steps) for s in (1, -1)]
    for near, far in brackets:
        if gap(near) == 0:
            return near
        if gap(near) * gap(far) < 0:
            return _bisected(gap, near, far)
    return None


def _bisected(gap: Any, low: float, high: float) -> float:
    """Find the root between two points of unlike sign, to twelve digits."""
    positive = gap(low) > 0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (gap(middle) > 0) == positive else (low, middle)
    return float(f"{low:.12g}")
