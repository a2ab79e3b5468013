"""Functions of one entry that are options of a call, with the expressions behind them."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

VARIABLE = sp.Symbol("entry", real=True)
"""The entry."""


@dataclass(frozen=True)
class Curve:
    """The expression of a function of ``VARIABLE``, then of ``parameters``: ``None`` where it is
    searched for, a tuple where it gives several."""

    expr: Any | None
    parameters: tuple[str, ...]
