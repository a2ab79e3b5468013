"""How equations are written: as plain Unicode, or as LaTeX."""

import re
from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.compiler.explain import printing
from mnemic.compiler.problem import TIME

HATS = {
    "y^": ("ŷ", r"\hat y"), "S^": ("Ŝ", r"\hat S"), "s^": ("ŝ", r"\hat s"),
    "k~": ("k̃", r"\tilde k"), "phi": ("φ", r"\phi"),
    "gamma": ("γ", r"\gamma"),
}  # fmt: skip
INDEX = {
    "": ("", ""), "t": ("ₜ", "_t"), "t-1": ("ₜ₋₁", "_{t-1}"), "i": ("ᵢ", "_i"),
    "ref": ("ᵣ", r"_{\mathrm{ref}}"),
}  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """One way of writing; every method gives a string."""

    tex: bool
    timed: dict[str, bool]

    def expr(self, value: Any) -> str:
        """Write a SymPy expression, its tokens counted from 1 where a coefficient's t counts from
        0."""
        value = sp.sympify(value)
        value = value.subs(TIME, TIME - 1) if value.has(TIME) else value
        return (printing.latex if self.tex else printing.text)(value, self.timed)

    def factor(self, value: Any) -> str:
        """Write an expression as a factor: nothing for one, in parentheses where it is a sum."""
        if value == 1:
            return ""
        shown = self.expr(value)
        return (self.wrapped(shown) if value.is_Add else shown) + " "

    def wrapped(self, shown: str) -> str:
        """Put what is shown in parentheses."""
        return rf"\left({shown}\right)" if self.tex else f"({shown})"

    def of(self, name: str, index: str = "t") -> str:
        """Write a named quantity with its index."""
        letter = HATS.get(name, (name, self._word(name)))[self.tex]
        return letter + INDEX[index][self.tex]

    def _word(self, name: str) -> str:
        return name if len(name) == 1 else rf"\mathrm{{{name}}}"

    def call(self, function: str, argument: str) -> str:
        """Write a function applied to its argument."""
        name = HATS.get(function, (function, rf"\operatorname{{{function}}}"))[self.tex]
        return f"{name}({argument})"

    def flipped(self, shown: str) -> str:
        """Write the transpose of what is shown."""
        return f"{shown}^\\top" if self.tex else f"{shown}ᵀ"

    def sign(self, text: str, tex: str) -> str:
        """Return the sign ``text``, or ``tex`` where LaTeX is written."""
        return tex if self.tex else text

    @property
    def times(self) -> str:
        """Entry by entry."""
        return self.sign(" ∘ ", r" \circ ")

    @property
    def minus(self) -> str:
        """Minus."""
        return self.sign("−", "-")

    def at_each(self, shown: str) -> str:
        """Write an expression of ŷ and v at token i of a window."""
        if self.tex:
            shown = shown.replace(r"\hat y", r"\hat y_i")
            return re.sub(r"(?<![\\A-Za-z])v(?![A-Za-z_])", "v_i", shown)
        return re.sub(r"\bv(?![A-Za-z0-9_])", "vᵢ", shown.replace("ŷ", "ŷᵢ"))

    def windowed(self, body: str, count: int) -> str:
        """Write the sum of ``body`` over the last ``count`` tokens."""
        if self.tex:
            return rf"\sum_{{i=t-{count - 1}}}^{{t}} {body}"
        return f"Σ_(i=t−{count - 1}..t) {body}"


def dialect(rule: Any, *, tex: bool) -> Dialect:
    """Return the dialect, LaTeX or text, in which a rule's coefficients are written."""
    return Dialect(tex, printing.steps_of(rule))
