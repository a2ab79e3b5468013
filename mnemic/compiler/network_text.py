"""A network's forward and backward passes as lines of a derivation."""

from collections.abc import Iterator
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.network import Apply, Back, Map, Network, Node, Norm

PHI: Any = sp.Function("Φ")

WORDS = {"phi": "φ(x)", "raw": "x"}


def forward_lines(network: Network) -> Iterator[str]:
    """``z2 = W2 φ(x)``, and so on, to the prediction."""
    yield from (line(node) for node in network.nodes)


def backward_lines(network: Network) -> Iterator[str]:
    """The chain rule's nodes from e, and every matrix's gradient δ aᵀ."""
    yield from (line(node) for node in network.backward.nodes)
    for matrix, (rows, keys) in sorted(network.backward.outer.items()):
        yield f"∇ of {matrix} = {word(rows)} {word(keys)}ᵀ"


def line(node: Node) -> str:
    """One node as an equation."""
    match node:
        case Apply(matrix=matrix, source=source):
            return f"{node.name} = {matrix} {word(source)}"
        case Back(matrix=matrix, source=source):
            return f"{node.name} = {matrix}ᵀ {word(source)}"
        case Map(expr=expr):
            return f"{node.name} = {_spelled(expr)}"
        case Norm(source=source):
            return f"{node.name} = LN({word(source)})"
        case _:
            return f"{node.name} = (∂LN/∂{node.at})ᵀ {word(node.source)}"


def word(name: str) -> str:
    """A node's name, or what the network is given."""
    return WORDS.get(name, name)


def _spelled(expr: Any) -> str:
    text = str(expr.replace(sym.normal_cdf, PHI))
    for name, shown in WORDS.items():
        text = text.replace(name, shown)
    return text.replace("**", "^").replace("*", " ")
