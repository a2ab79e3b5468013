"""The network's forward and backward passes as quantities of a plan.

Every vector of a layer has the axis ``v``, whatever its size, and a matrix has ``v`` and ``k``.
"""

from collections.abc import Callable, Mapping

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.compiler.network import (
    ERROR,
    FEATURES,
    ONE,
    RAW,
    Apply,
    Back,
    Map,
    Network,
    Node,
    Norm,
)

Product = Callable[[str, str, str, str], str]
"""From a matrix's name, a vector, a name for the result and its equation to W x (or Wᵀ x)."""

READOUT = ("readout", "readout")
PREDICTION = ("layers", "prediction")
"""The equations of a pass: of what lies inside the network, and of its output."""


def forward(
    b: Builder, network: Network, apply: Product, features: str, raw: str,
    equations: tuple[str, str], tag: str = "",
) -> dict[str, str]:  # fmt: skip
    """Plan every node of M at a vector (or rows of vectors); return them by the node's name."""
    found = {FEATURES: features, RAW: raw}
    if ONE in dict(network.widths):
        found[ONE] = _ones(b, network, features, tag)
    for node in network.nodes:
        equation = equations[node.name == network.output]
        found[node.name] = _node(b, node, found, apply, equation, tag)
    return found


def _ones(b: Builder, network: Network, features: str, tag: str) -> str:
    """Plan the number 1 as a vector of one entry, in the rows of the features.

    It is counted from a matrix with one column, which has the size, and from nothing in each row.
    """
    name = next(m.name for m in network.matrices if m.columns == ONE)
    state = name if name in b.plan.graph else f"A{name[1:]}"
    full = b.call(f"one{tag}_entries", ("v", "k"), "filled", state, value=1.0)
    count = b.call(f"one{tag}_count", ("k",), "total_rows", full)
    flat = b.call(f"one{tag}_nothing", b.plan.axes(features), "filled", features, value=0.0)
    rows = b.call(f"one{tag}_rows", b.plan.axes(features)[:-1], "total", flat)
    x, nothing = sp.Symbol("x_", real=True), sp.Symbol("n_", real=True)
    expr = nothing + sp.Piecewise((1, x > 0), (0, True))
    return b.map(f"one{tag}", expr, {"x_": (count, ("v",)), "n_": rows})


def backward(b: Builder, network: Network, back: Product, found: Mapping[str, str],
             error: str, written: str) -> dict[str, tuple[str, str]]:  # fmt: skip
    """Plan the rows and keys of each matrix's gradient, given e (or any multiple of it).

    A matrix that sees φ(k) is written with ``written``, which is another vector where predict
    and write keys differ.
    """
    known = {**found, ERROR: error}
    for node in network.backward.nodes:
        known[node.name] = _node(b, node, known, back, "chain rule")
    known[FEATURES] = written
    outer = network.backward.outer
    return {name: (known[rows], known[keys]) for name, (rows, keys) in outer.items()}


def _node(
    b: Builder, node: Node, known: Mapping[str, str], product: Product, equation: str,
    tag: str = "",
) -> str:  # fmt: skip
    name = f"{node.name}{tag}"
    match node:
        case Apply(matrix=matrix, source=source) | Back(matrix=matrix, source=source):
            return product(matrix, known[source], name, equation)
        case Map(expr=expr, sources=sources):
            env = {s: (known[s], as_vector(b, known[s])) for s in sources}
            return b.map(name, expr, env, equation)
        case Norm(source=source):
            x = known[source]
            return b.call(name, as_vector(b, x), "layer_norm", x, equation=equation)
        case _:
            grad, at = known[node.source], known[node.at]
            axes = as_vector(b, grad)
            return b.call(name, axes, "layer_norm_vjp", grad, at, equation=equation)


def as_vector(b: Builder, quantity: str) -> tuple[str, ...]:
    """Return the axes of a vector as a layer sees it, the last one ``v``."""
    return (*b.plan.axes(quantity)[:-1], "v")


def as_key(b: Builder, quantity: str) -> tuple[str, ...]:
    """Return the axes of a vector as the key of an outer product, the last one ``k``."""
    return (*b.plan.axes(quantity)[:-1], "k")
