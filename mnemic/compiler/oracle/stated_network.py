"""Deep memories written from the spec as plain functions of torch, with Muon's O and the norms."""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce

import torch
from torch import Tensor

from mnemic.compiler.oracle.stated_steps import EPSILON, Query
from mnemic.compiler.oracle.statement import evaluate_text
from mnemic.dsl.memory import Chain, Glu, Linear, LowRank, Memory, Mlp
from mnemic.dsl.methods import ELEMENTWISE
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import activation

Matrices = Mapping[str, Tensor]

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Muon's coefficients of x, x³ and x⁵."""


def has_layers(spec: Spec) -> bool:
    """Return whether the memory takes more than the plain recurrence of one matrix."""
    memory, optimizer = spec.memory, spec.optimizer
    layers = isinstance(memory, Glu | LowRank | Chain) or (
        isinstance(memory, Mlp) and memory.depth > 1
    )
    uses = optimizer.method in ("muon", *ELEMENTWISE) or optimizer.every > 1
    return layers or uses or spec.retention.normalize != "none"


def intervals(spec: Spec) -> dict[str, int]:
    """Return every matrix of the memory by name, with the tokens between its updates."""
    if isinstance(spec.memory, Linear):
        return {"W": spec.optimizer.every}
    found: dict[str, int] = {}
    for memory, every in _links(spec.memory):
        for _ in range(_count(memory)):
            found[f"W{len(found) + 1}"] = every * spec.optimizer.every
    return found


def seeing(spec: Spec) -> tuple[str, ...]:
    """Return the matrices that multiply φ(x)."""
    if isinstance(spec.memory, Linear):
        return ("W",)
    first, _ = next(_links(spec.memory))
    if isinstance(first, Glu):
        return ("W2", "W3")
    return ("W2",) if isinstance(first, LowRank) else (f"W{_count(first)}",)


def evaluate(
    spec: Spec, matrices: Matrices, query: Query, shifts: Matrices | None = None
) -> Tensor:  # fmt: skip
    """Return M(W, x): memory after memory, each with its LayerNorm and its residual.

    ``shifts`` are added to the products of the matrices that see φ(x).
    """
    order = list(intervals(spec))
    mapped, raw = query.mapped, query.raw
    for memory, _ in _links(spec.memory):
        names, order = order[: _count(memory)], order[_count(memory) :]
        y = _layers(memory, [_product(matrices, shifts or {}, name) for name in names], mapped)
        if isinstance(memory, LowRank):
            y = y + matrices[names[2]][:, 0] * raw
        if getattr(memory, "norm", False):
            y = torch.nn.functional.layer_norm(y, y.shape[-1:], eps=EPSILON)
        if getattr(memory, "residual", False):
            y = y + raw
        mapped = raw = y
    return mapped


def _links(memory: Memory) -> Iterator[tuple[Memory, int]]:
    """Yield the memories of a chain, each with its interval, the one that sees the key first."""
    if isinstance(memory, Chain):
        yield from zip(memory.chain, memory.every, strict=True)
    else:
        yield memory, 1


def _count(memory: Memory) -> int:
    if isinstance(memory, Glu | LowRank):
        return 3
    return memory.depth if isinstance(memory, Mlp) else 1


def _product(matrices: Matrices, shifts: Matrices, name: str) -> Callable[[Tensor], Tensor]:
    """Return the function x → W x, plus the matrix's shift if it has one."""
    shift = shifts.get(name)
    if shift is None:
        return lambda x: matrices[name] @ x
    return lambda x: matrices[name] @ x + shift


def _layers(memory: Memory, products: list[Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    """Compute W1 σ(W2 … σ(W_L x)), W1 (σ(W2 x) ∘ W3 x), W1 W2 x or W x."""
    match memory:
        case Glu(activation=text):
            outer, gate, plain = products
            return outer(_activated(text, gate(x)) * plain(x))
        case Mlp(activation=text):
            *others, first = products
            return reduce(lambda h, w: w(_activated(text, h)), reversed(others), first(x))
        case LowRank():
            left, right, _ = products
            return left(right(x))
    (product,) = products
    return product(x)


def _activated(text: str, x: Tensor) -> Tensor:
    return evaluate_text(activation(text), {"x": x}) + 0 * x


def orthogonalised(step: Tensor, iterations: int) -> Tensor:
    """Send the singular values of S/‖S‖ towards one by Muon's Newton–Schulz iteration."""
    if step.shape[0] > step.shape[1]:
        return orthogonalised(step.T, iterations).T
    size = torch.sqrt((step**2).sum()) if bool((step != 0).any()) else step.sum()
    x, (one, three, five) = step / (size + 1e-7), QUINTIC
    for _ in range(iterations):
        square = x @ x.T
        x = one * x + three * square @ x + five * square @ square @ x
    return x


def renormalised(spec: Spec, matrix: Tensor, first: Tensor) -> Tensor:
    """Scale each row (or column) of W to the norm that it had in W_0; a zero one stays zero.

    A layer norm is computed by torch, with the spread of W_0's row as its gain and without ε.
    """
    if spec.retention.normalize == "none":
        return matrix
    if spec.retention.normalize == "layer-norm":
        gain = first.std(-1, correction=0, keepdim=True)
        flat = matrix.std(-1, correction=0, keepdim=True) == 0
        whole = torch.nn.functional.layer_norm(matrix, matrix.shape[-1:], eps=0.0)
        return torch.where(flat, 0.0, gain * whole)
    rows = spec.retention.normalize == "rows"
    lines, firsts = (matrix, first) if rows else (matrix.T, first.T)
    scaled = [
        line * torch.linalg.vector_norm(other) / torch.linalg.vector_norm(line)
        if bool((line != 0).any())
        else line
        for line, other in zip(lines, firsts, strict=True)
    ]
    return torch.stack(scaled) if rows else torch.stack(scaled).T
