"""The steps of a memory of layers, forward and backward, as lines of text and of LaTeX."""

from collections.abc import Callable
from typing import Any

import sympy as sp

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
)

WORDS = {FEATURES: "φ(x)", RAW: "x", ONE: "1"}
TEX = {FEATURES: r"\phi(x)", RAW: "x", ONE: "1"}


def line(step: Node | Outer) -> str:
    """Return a step as ``z2 = W2 φ(x)``; ∂z2 stands for ∂ℓ/∂z2, ∂h2|W1 for W1's part of it."""
    name = _word(getattr(step, "name", ""))
    match step:
        case Apply(matrix=matrix, source=source):
            return f"{name} = {matrix} {_word(source)}"
        case Back(matrix=matrix, source=source):
            return f"{name} = {matrix}ᵀ {_word(source)}"
        case Map(expr=expr):
            return f"{name} = {_spelled(expr)}"
        case Norm(source=source):
            return f"{name} = LN({_word(source)})"
        case Outer(matrix=matrix, rows=rows, keys=keys):
            return f"∇ of {matrix} = {_word(rows)} {_word(keys)}ᵀ"
        case _:
            return f"{name} = LN′({_word(step.at)})ᵀ {_word(step.source)}"


def tex(step: Node | Outer) -> str:
    r"""Write a step in LaTeX: ``z_{2} = W_{2} \phi(x)``, and so on."""
    match step:
        case Apply(matrix=matrix, source=source):
            return f"{_typeset(step.name)} = {_typeset(matrix)} {_typeset(source)}"
        case Back(matrix=matrix, source=source):
            return rf"{_typeset(step.name)} = {_typeset(matrix)}^\top {_typeset(source)}"
        case Map(expr=expr):
            return f"{_typeset(step.name)} = {_set(expr)}"
        case Norm(source=source):
            return rf"{_typeset(step.name)} = \operatorname{{LN}}({_typeset(source)})"
        case Outer(matrix=matrix, rows=rows, keys=keys):
            return rf"\nabla_{{{_typeset(matrix)}}} = {_typeset(rows)} {_typeset(keys)}^\top"
        case _:
            at = _typeset(step.at)
            slope = rf"\left(\frac{{\partial \operatorname{{LN}}}}{{\partial {at}}}\right)^\top"
            return f"{_typeset(step.name)} = {slope} {_typeset(step.source)}"


def _word(name: str) -> str:
    """Return a node's name, or what the network is given."""
    node, part = _derivative(name)
    if node:
        return f"∂{_word(node)}" + (f"|{part}" if part else "")
    return WORDS.get(name, name)


def _typeset(name: str) -> str:
    node, part = _derivative(name)
    if node:
        return rf"\partial {_typeset(node)}" + (rf"|_{{{letters.tex(part)}}}" if part else "")
    return TEX.get(name, letters.tex(name))


def _derivative(name: str) -> tuple[str, str]:
    """Split ``d_h2_W1`` into the node and what its part of the derivative comes through."""
    if not name.startswith("d_"):
        return "", ""
    node, _, part = name.removeprefix("d_").partition("_")
    return node, part


def _spelled(expr: Any) -> str:
    """Write an elementwise map, with the names of its nodes as they are shown."""
    return _printed(expr, printing.text, letters.letter, _word)


def _set(expr: Any) -> str:
    """Write an elementwise map as LaTeX, with the names' own LaTeX whole."""
    return _printed(expr, printing.latex, letters.tex, _typeset)


def _printed(
    expr: Any, write: Callable[[Any], str], shown: Callable[[str], str], name: Callable[[str], str]
) -> str:
    """Write a map with placeholders for its nodes, whose names may be those of other symbols."""
    nodes = sorted(expr.free_symbols, key=lambda x: name(x.name))
    places = {x: sp.Symbol(f"zz{chr(97 + i)}", real=True) for i, x in enumerate(nodes)}
    text = write(expr.xreplace(places))
    for x, place in places.items():
        text = text.replace(shown(place.name), name(x.name))
    return text
