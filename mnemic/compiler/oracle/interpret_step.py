"""One step of a rule's normal form: G, S, A, W of every matrix, in this order and nothing else.

Every matrix follows the normal form by itself: S accumulates −η δ aᵀ, A decays and has O(S) added
at the multiples of its interval, and W = link(A) is constant in between.
"""

from dataclasses import replace

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.network import Matrix
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret_averages import averaged
from mnemic.compiler.oracle.interpret_gradient import Values, gradient, link_of, seen
from mnemic.compiler.oracle.interpret_state import Counts, Layer, Pairs, State, chosen
from mnemic.compiler.oracle.reference_links import apply_link, multiply
from mnemic.compiler.oracle.reference_network import at_norms, line_norms, newton_schulz
from mnemic.compiler.rule import Rule


def micro_step(
    rule: Rule, state: State, pairs: Pairs, values: Values, position: Tensor, *, first: bool,
    last: bool,
) -> State:  # fmt: skip
    """Take one step of the optimizer; the decoupled decay acts in the first of a token, and O in
    the last of a token where a matrix's interval ends."""
    decay = evaluate(rule.retained.decay, values)
    if first:
        decay = evaluate(rule.decay, values) * evaluate(rule.row_decay, values)
    erased, written = gradient(rule, seen(rule, state, values, first), pairs, values)
    layers = []
    for matrix, layer in zip(rule.network.matrices, state.layers, strict=True):
        held, direct = _stepped(rule, matrix, layer, erased[matrix.name], written[matrix.name],
                                values)  # fmt: skip
        held = replace(held, dual=decay * layer.dual,
                       counts=_counts(rule, layer.counts, pairs, values, first))  # fmt: skip
        used = _used(rule, matrix, held, direct, decay, values)
        ends = (position % matrix.every == 0) & last
        layers.append(used if matrix.every == 1 else chosen(ends, used, held))
    return State(tuple(layers), state.tail)


def _stepped(
    rule: Rule, matrix: Matrix, layer: Layer, erased: Tensor, written: Tensor, values: Values
) -> tuple[Layer, Tensor]:
    """Return the layer with S_t (without momentum the steps since the last O), and the part of the
    step that bypasses S_t."""
    whole, direct = erased + written, torch.zeros_like(written)
    if rule.applied.elementwise:
        return averaged(rule, layer, whole, values), direct
    rate = 1.0 if rule.applied.outside else evaluate(rule.rate, values)
    if rule.momentum is None:
        gathered = layer.momentum if matrix.every > 1 else 0.0
        return replace(layer, momentum=gathered - rate * whole), direct
    if rule.momentum_on == "write" and rule.split:
        whole, direct = written, -rate * erased
    momentum = evaluate(rule.momentum, values) * layer.momentum - rate * whole
    return replace(layer, momentum=momentum), direct


def _used(
    rule: Rule, matrix: Matrix, layer: Layer, direct: Tensor, decay: Tensor, values: Values
) -> Layer:
    """Return the layer with O(S) added to the decayed A, and with the new W."""
    scale, step = evaluate(rule.gain, values), layer.momentum + direct
    if rule.applied.outside:
        scale = scale * evaluate(rule.rate, values)
    if rule.applied.kind == "newton-schulz":
        step = newton_schulz(step, rule.applied.steps)
    if layer.averages is not None:
        step = layer.averages.step
    momentum = layer.momentum if rule.momentum is not None else torch.zeros_like(layer.momentum)
    if rule.retained.mode == "multiplicative":
        memory = multiply(rule.retained, decay * layer.memory, scale * step, values)
        return replace(layer, dual=memory, memory=memory, momentum=momentum)
    dual = layer.dual + scale * step
    memory = apply_link(link_of(rule, matrix), dual, values)
    new = replace(layer, dual=dual, memory=memory, momentum=momentum)
    return settled(rule, matrix, new, values) if rule.anchor == 1 else new


def _counts(
    rule: Rule, counts: Counts | None, pairs: Pairs, values: Values, first: bool
) -> Counts | None:
    """Update the coefficient of each kept pair, as if every pair wrote the value one."""
    if counts is None:
        return None
    decay = evaluate(rule.decay if first else rule.retained.decay, values)
    fast = pairs.column.sum(1)
    if rule.momentum is not None:
        fast = evaluate(rule.momentum, values) * counts.momentum + fast
    return Counts(decay * counts.memory + fast, fast, counts.anchor)


def settled(rule: Rule, matrix: Matrix, layer: Layer, values: Values) -> Layer:
    """Apply what acts on W itself: norms, and ∇R(W) in place of A."""
    if layer.norms is not None:
        dual = at_norms(centred(rule, layer.dual), layer.norms, rule.applied.normalize)
        layer = replace(layer, dual=dual, memory=apply_link(link_of(rule, matrix), dual, values))
    if rule.retained.mode == "prox":
        dual = evaluate(rule.retained.mirror, {**values, sym.w: layer.memory})
        layer = replace(layer, dual=dual)
    return layer


def norms_of(rule: Rule, matrix: Tensor) -> Tensor:
    """Return the norms of a matrix's lines, which it is scaled back to."""
    return line_norms(centred(rule, matrix), rule.applied.normalize)


def centred(rule: Rule, matrix: Tensor) -> Tensor:
    """Return a matrix whose lines have lost their means, where norms are of centred ones."""
    if not rule.applied.centred:
        return matrix
    return matrix - matrix.mean(-1 if rule.applied.normalize == "rows" else -2, keepdim=True)
