"""The steps of a memory of layers, forward and backward, as lines of text and of LaTeX."""

from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain import letters, printing
from mnemic.compiler.network import (
    FEATURES,
    ONE,
    RAW,
    Apply,
    Back,
    Map,
    Node,
    Norm,
    Outer,
    node_symbol,
)

PHI: Any = sp.Function("Φ")

WORDS = {FEATURES: "φ(x)", RAW: "x", ONE: "1"}
TEX = {FEATURES: r"\phi(x)", RAW: "x", ONE: "1"}


def line(step: Node | Outer) -> str:
    """``z2 = W2 φ(x)``, and so on."""
    match step:
        case Apply(matrix=matrix, source=source):
            return f"{step.name} = {matrix} {_word(source)}"
        case Back(matrix=matrix, source=source):
            return f"{step.name} = {matrix}ᵀ {_word(source)}"
        case Map(expr=expr):
            return f"{step.name} = {_spelled(expr)}"
        case Norm(source=source):
            return f"{step.name} = LN({_word(source)})"
        case Outer(matrix=matrix, rows=rows, keys=keys):
            return f"∇ of {matrix} = {_word(rows)} {_word(keys)}ᵀ"
        case _:
            return f"{step.name} = (∂LN/∂{step.at})ᵀ {_word(step.source)}"


def tex(step: Node | Outer) -> str:
    r"""``z_{2} = W_{2} \phi(x)``, and so on."""
    match step:
        case Apply(matrix=matrix, source=source):
            return f"{_typeset(step.name)} = {_typeset(matrix)} {_typeset(source)}"
        case Back(matrix=matrix, source=source):
            return rf"{_typeset(step.name)} = {_typeset(matrix)}^\top {_typeset(source)}"
        case Map(expr=expr):
            places = {node_symbol(FEATURES): sp.Function("phi")(sp.Symbol("x"))}
            return f"{_typeset(step.name)} = {printing.latex(expr.subs(places))}"
        case Norm(source=source):
            return rf"{_typeset(step.name)} = \operatorname{{LN}}({_typeset(source)})"
        case Outer(matrix=matrix, rows=rows, keys=keys):
            return rf"\nabla_{{{_typeset(matrix)}}} = {_typeset(rows)} {_typeset(keys)}^\top"
        case _:
            at = _typeset(step.at)
            slope = rf"\left(\frac{{\partial \operatorname{{LN}}}}{{\partial {at}}}\right)^\top"
            return f"{_typeset(step.name)} = {slope} {_typeset(step.source)}"


def _word(name: str) -> str:
    """A node's name, or what the network is given."""
    return WORDS.get(name, name)


def _typeset(name: str) -> str:
    return TEX.get(name, letters.tex(name))


def _spelled(expr: Any) -> str:
    text = str(expr.replace(sym.normal_cdf, PHI))
    for name, shown in WORDS.items():
        text = text.replace(name, shown)
    return text.replace("**", "^").replace("*", " ")
