"""The gradient of one step: the memory that it sees, predictions, and δ aᵀ of every matrix.

Gradients go through the network of the rule, evaluated node by node; one matrix W alone is the
network whose only node is W φ.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.kernels import Kernel
from mnemic.compiler.network import Matrix
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret_state import Layer, Pairs, State, counted
from mnemic.compiler.oracle.reference_links import TINY, apply_link, from_dual
from mnemic.compiler.oracle.reference_network import Product, forward, gradients, product
from mnemic.compiler.retention import Link
from mnemic.compiler.rule import Rule

Values = dict[Any, Tensor]


def read(rule: Rule, memory: Mapping[str, Tensor], key: Tensor, raw: Tensor) -> Tensor:
    """Return M(W, ·) of a query, a column [B, H, d_v, 1]."""
    through = _product(rule, None if rule.kernels is None else rule.kernels.read)
    return forward(rule.network, memory, key.mT, raw, through)[rule.network.output]


def _predicted(rule: Rule, memory: Mapping[str, Tensor], pairs: Pairs, i: int) -> dict[str, Tensor]:
    """Return every node of M at one key; zero where nothing depends on the prediction."""
    network = rule.network
    if network.linear and rule.error.constant:
        return {network.output: torch.zeros_like(pairs.value[:, i])}
    through = _product(rule, None if rule.kernels is None else rule.kernels.predict)
    return forward(network, memory, pairs.predict[:, i].mT, pairs.raw[:, i], through)


def _product(rule: Rule, kernel: Kernel | None) -> Product:
    """Return W φ(x), if asked for divided by the sum of a kernel's row (0 for an empty row)."""
    if kernel is None or rule.kernels is None or not rule.kernels.normalised:
        return product

    def over_sum(matrix: Tensor, x: Tensor) -> Tensor:
        y = product(matrix, x)
        y, total = y[..., :-1, :], y[..., -1:, :]
        mean = torch.where(total == 0, 0.0, y / torch.where(total == 0, 1.0, total))
        return mean if kernel.normalised else y

    return over_sum


def gradient(
    rule: Rule, seen: Mapping[str, Tensor], pairs: Pairs, values: Values
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Compute G = Σ γ δ aᵀ of every matrix, in two parts: what erases and what writes."""
    weight = evaluate(rule.weight, values)
    erased: dict[str, Tensor] = {}
    written: dict[str, Tensor] = {}
    for i in range(pairs.value.shape[1]):
        value, gamma = pairs.value[:, i], weight * pairs.gamma[:, i]
        known = _predicted(rule, seen, pairs, i)
        y = known[rule.network.output]
        here = {**values, sym.y: y, sym.v: value, **sizes(y - value, pairs.square[:, i])}
        if rule.split and rule.network.linear:
            (name,) = seen
            taken = gamma * evaluate(rule.error.slope, here) * y * pairs.erase[:, i]
            erased[name] = erased.get(name, 0) + taken
            found = {name: gamma * evaluate(rule.error.offset, here) * pairs.write[:, i]}
        else:
            error = gamma * (evaluate(rule.error.signal, here) + torch.zeros_like(y))
            found = gradients(rule.network, seen, known, error, pairs.write[:, i].mT)
        written |= {name: written.get(name, 0) + x for name, x in found.items()}
    return {n: erased.get(n, torch.zeros_like(x)) for n, x in written.items()}, written


def sizes(residual: Tensor, square: Tensor) -> Values:
    """Return n and κ, kept off zero so that 0/0 in an error signal comes out as 0."""
    norm = (residual**2).sum(-2, keepdim=True).clamp_min(TINY**2).sqrt()
    return {sym.n: norm, sym.kappa: square.clamp_min(TINY)}


def seen(rule: Rule, state: State, values: Values, first: bool) -> dict[str, Tensor]:
    """Return W_ref of every matrix, with the coefficients of its pairs where they are kept."""
    before = first and rule.problem.spec.retention.order == "before"
    found = {}
    for matrix, layer in zip(rule.network.matrices, state.layers, strict=True):
        decays = before and rule.anchor == 1
        read_from = _decayed(rule, matrix, layer, values) if decays else layer
        found[matrix.name] = counted(read_from, "memory" if rule.anchor == 1 else "anchor")
    return found


def _decayed(rule: Rule, matrix: Matrix, layer: Layer, values: Values) -> Layer:
    """Return the memory after the decay that the gradient sees under ``order: before``."""
    retained, counts = rule.retained, layer.counts
    link = link_of(rule, matrix, stepped=False)
    if matrix.every > 1 or rule.seen * rule.row_decay == 1:
        return layer
    if counts is not None:
        counts = replace(counts, memory=evaluate(rule.seen, values) * counts.memory)
    seen = evaluate(rule.seen, values) * evaluate(rule.row_decay, values)
    multiplied = retained.mode == "multiplicative"
    memory = seen * layer.memory if multiplied else opened(rule, link, seen * layer.dual, values)
    return replace(layer, memory=memory, counts=counts)


def opened(rule: Rule, link: Link, dual: Tensor, values: Values) -> Tensor:
    """Return W of a dual before any step: through the link, or R alone where W is the state."""
    if rule.retained.mode == "prox" and link.normaliser == "none":
        return from_dual(rule.retained, dual, values)
    return apply_link(link, dual, values)


def link_of(rule: Rule, matrix: Matrix, *, stepped: bool = True) -> Link:
    """Return the link, with the scale of this matrix where each has its own; of a dual that no
    step was taken on unless ``stepped``."""
    own = rule.problem.scalar("scale" + matrix.name.removeprefix("W"))
    link = rule.retained.link if stepped else rule.retained.without_step
    return link if own is None else replace(link, scale=own.symbol)
