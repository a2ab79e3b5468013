"""The derivation as LaTeX."""

from typing import Any

import sympy as sp

from mnemic.compiler.explain import printing
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.explain.explanation import Explanation, explain
from mnemic.compiler.rule import Rule

GREEK_TEXT = {
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "Δ": r"\Delta", "η": r"\eta",
    "θ": r"\theta", "λ": r"\lambda", "κ": r"\kappa", "ζ": r"\zeta", "ν": r"\nu", "ω": r"\omega",
    "φ": r"\phi", "ℓ": r"\ell", "∇": r"\nabla", "Σ": r"\Sigma", "∂": r"\partial", "∞": r"\infty",
    "∘": r"\circ", "≤": r"\le", "≥": r"\ge", "→": r"\to", "·": r"\cdot", "‖": r"\|",
    "½": r"\tfrac12", "⟨": r"\langle", "⟩": r"\rangle", "−": "-", "∈": r"\in", "≠": r"\ne",
    "√": r"\surd",
}  # fmt: skip
RAISED = {
    "²": "^2",
    "ₜ": "_t",
    "ᵢ": "_i",
    "ᵀ": r"^\top",
    "″": "''",
    "₋": "_-",
    "₁": "_1",
    "₀": "_0",
}
SPECIAL = {"_": r"\_", "&": r"\&", "%": r"\%", "#": r"\#", "{": r"\{", "}": r"\}", "^": r"\^{}"}


def latex_of(rule: Rule) -> str:
    """The numbered equations alone, ready for ``_repr_latex_`` of a notebook."""
    lines = [rf"{q.latex} && \text{{{q.name}}} \tag{{{q.number}}}" for q in equations(rule)]
    body = " \\\\\n".join(r"& " + line for line in lines)
    return "$$\\begin{align*}\n" + body + "\n\\end{align*}$$"


def to_latex(rule: Rule) -> str:
    """The derivation as a LaTeX section (needs amsmath)."""
    e, timed = explain(rule), printing.steps_of(rule)
    parts = [
        rf"\section*{{{prose(e.title or e.name)}}}",
        prose(e.problem[0].upper() + e.problem[1:] + "."),
        _items([_step(s.title, s.equation, s.reason, timed) for s in e.steps]),
        "\\begin{align}\n"
        + " \\\\\n".join(rf"& {q.latex}" for q in e.equations)
        + "\n\\end{align}",
        *(prose(r) for r in e.remarks),
        rf"\textbf{{Class}} {prose(e.kind)}: {prose(e.reason)}. " + _forms(e),
        _listed("Approximations", e.approximations),
        _coefficients(e),
        _costs(e),
        rf"\textbf{{Stability.}} {prose(e.stability.sentence)}",
        _listed("Warnings", e.warnings),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def prose(text: str) -> str:
    """Plain text as LaTeX: special characters escaped, signs as formulas."""
    found = []
    for letter in text:
        if letter in SPECIAL:
            found.append(SPECIAL[letter])
        elif letter in GREEK_TEXT:
            found.append(f"${GREEK_TEXT[letter]}$")
        elif letter in RAISED:
            found.append(f"${{}}{RAISED[letter]}$")
        elif letter == "ŷ":
            found.append(r"$\hat y$")
        else:
            found.append(letter)
    return "".join(found).replace("$$", "")


def _step(title: str, equation: Any, reason: str, timed: dict[str, bool]) -> str:
    return f"{prose(title)}: {formula(equation, timed)} ({prose(reason)})"


def formula(equation: Any, timed: dict[str, bool]) -> str:
    """A step's equation between dollars, or as text."""
    if isinstance(equation, sp.Eq):
        names = {"ell": r"\ell", "e": "e", "dual": r"\nabla R(W)"}
        left = names.get(str(equation.lhs)) or printing.latex(equation.lhs, timed)
        return f"${left} = {printing.latex(equation.rhs, timed)}$"
    if isinstance(equation, sp.Basic):
        return f"${printing.latex(equation, timed)}$"
    return "none in closed form" if equation is None else prose(str(equation))


def _items(lines: list[str]) -> str:
    body = "\n".join(rf"  \item {line}" for line in lines)
    return "\\begin{enumerate}\n" + body + "\n\\end{enumerate}" if lines else ""


def _listed(title: str, lines: tuple[str, ...]) -> str:
    return rf"\textbf{{{title}.}} " + prose(" ".join(lines)) if lines else ""


def _forms(e: Explanation) -> str:
    known = "Forms: " + (", ".join(e.forms) if e.forms else "none yet") + "."
    return known + (f" Not compiled: {prose(e.missing)}." if e.missing else "")


def _coefficients(e: Explanation) -> str:
    rows = [
        rf"${printing.LATEX.get(a.name, a.name)}$ & "
        + (rf"\texttt{{{prose(a.argument)}}} & {prose(a.shape)} & ${_span(a.span)}$" if a.argument
           else rf"fixed & & ${printing.latex(a.value)}$")
        for a in e.arguments
    ]  # fmt: skip
    if not rows:
        return ""
    body = " \\\\\n".join(rows)
    return "\\begin{tabular}{llll}\n" + body + "\n\\end{tabular}"


def _span(span: str) -> str:
    return span.replace("∞", r"\infty").replace("−", "-")


def _costs(e: Explanation) -> str:
    rows = " \\\\\n".join(
        rf"{name.replace('_', ' ')} & ${sp.latex(expr)}$" for name, expr in e.cost.rows()
    )
    return "\\begin{tabular}{ll}\n" + rows + "\n\\end{tabular}"
