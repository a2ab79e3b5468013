"""The derivation as LaTeX."""

from typing import Any

import sympy as sp

from mnemic.compiler.explain import letters, network_lines, printing
from mnemic.compiler.explain.equations import Equation, equations
from mnemic.compiler.explain.explanation import Explanation, explain
from mnemic.compiler.explain.prose import prose
from mnemic.compiler.explain.tex_lines import aligned, inline
from mnemic.compiler.rule import Rule


def latex_of(rule: Rule) -> str:
    """Return the numbered equations alone, ready for ``_repr_latex_`` of a notebook."""
    lines = [rf"{q.latex} && \text{{{q.name}}} \tag{{{q.number}}}" for q in equations(rule)]
    body = " \\\\\n".join(r"& " + line for line in lines)
    return "$$\\begin{align*}\n" + body + "\n\\end{align*}$$"


def to_latex(rule: Rule) -> str:
    """Return the derivation as a LaTeX section (needs amsmath)."""
    e, timed = explain(rule), printing.steps_of(rule)
    parts = [
        rf"\section*{{{prose(e.title or e.name)}}}",
        prose(e.problem[0].upper() + e.problem[1:] + "."),
        _items([_step(s.title, s.equation, s.reason, timed) for s in e.steps]),
        _aligned(e.equations),
        *(prose(r) for r in e.remarks),
        r"\textbf{Layer.} " + prose(" ".join(e.layer_words)),
        _aligned(e.layer),
        rf"\textbf{{Class}} {prose(e.kind)}: {prose(e.reason)}. " + _forms(e),
        _listed("Approximations", e.approximations),
        _coefficients(e),
        _costs(e),
        rf"\textbf{{Stability.}} {prose(e.stability.sentence)}",
        _listed("Warnings", e.warnings),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _aligned(found: tuple[Equation, ...]) -> str:
    """Return equations under each other; LaTeX counts them as they are numbered."""
    return (
        "\\begin{align}\n"
        + " \\\\\n".join(rf"& {aligned(q.latex)}" for q in found)
        + "\n\\end{align}"
    )


def _step(title: str, equation: Any, reason: str, timed: dict[str, bool]) -> str:
    return f"{prose(title)}: {formula(equation, timed)} ({prose(reason)})"


def formula(equation: Any, timed: dict[str, bool]) -> str:
    """Return a step's equation between dollars, or as text."""
    if isinstance(equation, sp.Eq):
        names = {"ell": r"\ell", "e": "e", "dual": r"\nabla R(W)", "phi": r"\phi(x)"}
        left = names.get(str(equation.lhs)) or printing.latex(equation.lhs, timed)
        return inline(f"{left} = {printing.latex(equation.rhs, timed)}")
    if isinstance(equation, sp.Basic):
        return inline(printing.latex(equation, timed))
    if equation is None or isinstance(equation, str):
        return prose(equation or "none in closed form")
    return f"${network_lines.tex(equation)}$"


def _items(lines: list[str]) -> str:
    body = "\n".join(rf"  \item {line}" for line in lines)
    return "\\begin{enumerate}\n" + body + "\n\\end{enumerate}" if lines else ""


def _listed(title: str, lines: tuple[str, ...]) -> str:
    """Return a heading with a list below it, or nothing where there is nothing to list."""
    body = "\n".join(rf"  \item {prose(line)}" for line in lines)
    head = rf"\textbf{{{title}.}}"
    return head + "\n\\begin{itemize}\n" + body + "\n\\end{itemize}" if lines else ""


def _forms(e: Explanation) -> str:
    known = "Forms: " + (", ".join(e.forms) if e.forms else "none yet") + "."
    return known + (f" Not compiled: {prose(e.missing)}." if e.missing else "")


def _coefficients(e: Explanation) -> str:
    rows = [
        rf"${letters.tex(a.name)}$ & "
        + (rf"\texttt{{{prose(a.argument)}}} & {prose(a.shape)} & ${_span(a.span)}$" if a.argument
           else rf"fixed & & ${printing.latex(a.value)}$")
        for a in e.arguments
    ]  # fmt: skip
    if not rows:
        return ""
    body = " \\\\\n".join(rows)
    return "\\begin{tabular}{llll}\n" + body + "\n\\end{tabular}"


def _span(span: str) -> str:
    return span.replace("∞", r"\infty").replace("−", "-") if span != "any" else r"\text{any}"


def _costs(e: Explanation) -> str:
    """Return the costs below each other, each with room for several lines."""
    rows = " \\\\\n".join(
        rf"{name.replace('_', ' ')} & {{\raggedright ${sp.latex(expr)}$\par}}"
        for name, expr in e.cost.rows()
    )
    return "\\begin{tabular}{lp{0.7\\linewidth}}\n" + rows + "\n\\end{tabular}"
