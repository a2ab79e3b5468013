"""A derived network evaluated plainly, forwards and backwards, and what acts on whole matrices.

Vectors are columns [B, H, n, 1], matrices [B, H, rows, columns].
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

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
    NormBack,
    node_symbol,
)
from mnemic.compiler.oracle.evaluate import evaluate

EPSILON = 1e-5
TINY = 1e-30

Tensors = Mapping[str, Tensor]
Product: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def product(matrix: Tensor, x: Tensor) -> Tensor:
    """Compute W x, or W ∘ x where W is a number a channel, [B, H, n, 1], and x lies as a row."""
    return (matrix * x.mT).sum(-1, keepdim=True)


def forward(
    network: Network, matrices: Tensors, features: Tensor, raw: Tensor, through: Product = product
) -> dict[str, Tensor]:
    """Return every node of M at one vector, by name; ``through`` is what a matrix does to φ(x)."""
    known = {FEATURES: features, RAW: raw, ONE: torch.ones_like(features[..., :1, :1])}
    for node in network.nodes:
        known[node.name] = _node(node, matrices, known, through)
    return known


def gradients(
    network: Network, matrices: Tensors, known: Tensors, error: Tensor, written: Tensor
) -> dict[str, Tensor]:
    """Return δ aᵀ for every matrix, e = ∂ℓ/∂ŷ given; ``written`` is φ(k) where it is written.

    (Behind a kernel that is the pair's column, where ``known`` has κ of every pair.)
    """
    found = {**known, ERROR: error}
    for node in network.backward.nodes:
        found[node.name] = _node(node, matrices, found, product)
    pairs = network.backward.outer.items()
    found[FEATURES] = written
    return {name: found[rows] * found[keys].mT for name, (rows, keys) in pairs}


def _node(node: Node, matrices: Tensors, known: Tensors, through: Product) -> Tensor:
    match node:
        case Apply(matrix=matrix, source=source):
            return (through if source == FEATURES else product)(matrices[matrix], known[source])
        case Back(matrix=matrix, source=source):
            return product(matrices[matrix].mT, known[source])
        case Map(expr=expr, sources=sources):
            return evaluate(expr, {node_symbol(s): known[s] for s in sources})
        case Norm(source=source):
            return _unit(known[source])[0]
        case NormBack(source=source, at=at):
            return _norm_back(known[source], known[at])


def _unit(z: Tensor) -> tuple[Tensor, Tensor]:
    centred = z - z.mean(-2, keepdim=True)
    size = torch.sqrt((centred**2).mean(-2, keepdim=True) + EPSILON)
    return centred / size, size


def _norm_back(grad: Tensor, z: Tensor) -> Tensor:
    """Compute (∂LN/∂z)ᵀ g = (g − mean g − u mean(g u))/size with u = LN(z)."""
    unit, size = _unit(z)
    along = unit * (grad * unit).mean(-2, keepdim=True)
    return (grad - grad.mean(-2, keepdim=True) - along) / size


def newton_schulz(step: Tensor, iterations: int) -> Tensor:
    """Return p(…p(S/‖S‖)) with p(x) = 3.4445 x − 4.7750 x³ + 2.0315 x⁵ in the sense x³ = X Xᵀ X."""
    x = step / ((step**2).sum((-2, -1), keepdim=True).clamp_min(TINY).sqrt() + 1e-7)
    for _ in range(iterations):
        cube = x @ x.mT @ x
        x = 3.4445 * x - 4.7750 * cube + 2.0315 * cube @ x.mT @ x
    return x


def line_norms(matrix: Tensor, lines: str) -> Tensor:
    """Return the norm of each row (or column), kept as a column (or row)."""
    axis = -1 if lines == "rows" else -2
    return (matrix**2).sum(axis, keepdim=True).clamp_min(TINY).sqrt()


def at_norms(matrix: Tensor, norms: Tensor, lines: str) -> Tensor:
    """Return each row (or column) scaled to the norm given."""
    return matrix / line_norms(matrix, lines) * norms
