"""Running averages and sums of an expression of the gradient, entry by entry."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

GRADIENT = sp.Symbol("g", real=True)
"""One entry of g = −∇_W ℓ."""


@dataclass(frozen=True)
class Running:
    """X_t = ``decay`` X_{t−1} + ``share`` ``entry``, an expression of ``GRADIENT``.

    ``share`` is 1 − ``decay``, or 1 of a sum, which forgets nothing. ``state`` is what the forms
    call it, ``letter`` what equations call it. A step that reads a ``corrected`` average reads X_t
    over the weight that it has gathered, 1 − Π ``decay``.
    """

    state: str
    letter: str
    decay: Any
    share: Any
    entry: Any
    corrected: bool
    meaning: str

    @property
    def after(self) -> Any:
        """What a step reads of the average after the token."""
        return sp.Symbol(self.letter, real=True)

    @property
    def before(self) -> Any:
        """What a step reads of the average before the token, never corrected."""
        return sp.Symbol(f"{self.letter}_old", real=True)

    @property
    def weight(self) -> str:
        """The state that holds the weight which a corrected average has gathered."""
        return f"{self.state}_weight"

    @property
    def equation(self) -> str:
        """The name of the average's line among the equations."""
        return "momentum" if self.entry == GRADIENT else self.state
