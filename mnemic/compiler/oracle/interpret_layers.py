"""The recurrence of a rule whose memory has layers, intervals, an O or norms.

Every matrix has the normal form of its own: S gathers −η δ aᵀ, A decays and takes O(S) at the
multiples of its interval, W = link(A) stands still between. Gradients go through the network of
the rule, evaluated node by node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import sympy as sp
import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.network import Matrix
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret_inputs import Inputs
from mnemic.compiler.oracle.interpret_run import (
    Named,
    grown,
    named_tail,
    pair_of,
    tail_of,
    widened,
)
from mnemic.compiler.oracle.interpret_step import Pairs, Values, chosen, sizes
from mnemic.compiler.oracle.reference_links import apply_link, from_dual
from mnemic.compiler.oracle.reference_network import (
    at_norms,
    forward,
    gradients,
    line_norms,
    newton_schulz,
)
from mnemic.compiler.retention import Link
from mnemic.compiler.rule import Rule
from mnemic.compiler.running import GRADIENT


@dataclass(frozen=True)
class Layer:
    """One matrix: A, W as it is read, S, W at the last chunk's end, the norms of its lines.

    Of an optimizer that acts entry by entry also its averages, and what is left of the empty start
    in each, Πβ; and its step.
    """

    dual: Tensor
    memory: Tensor
    momentum: Tensor
    anchor: Tensor
    norms: Tensor
    averages: tuple[Tensor, ...]
    left: tuple[Tensor, ...]
    step: Tensor


@dataclass(frozen=True)
class State:
    """Every matrix in the network's order, and the window's tail."""

    layers: tuple[Layer, ...]
    tail: Pairs


def recurrence(
    rule: Rule, inputs: Inputs, start: Named, params: Mapping[str, Tensor]
) -> tuple[list[dict[str, Tensor]], Named]:
    """The matrices that each token's query reads, and the last state."""
    if rule.retained.mode == "multiplicative":
        raise ValueError("an f-divergence of a memory with layers is not interpreted")
    state = _first(rule, inputs, start, params)
    memories = []
    for t in range(inputs.mask.shape[1]):
        new = chosen(inputs.mask[:, t], _token(rule, inputs, t, state), state)
        read = {"after": new, "before": state, "anchor": state}
        which = rule.problem.spec.readout.memory
        field = "anchor" if which == "anchor" else "memory"
        memories.append(_matrices(rule, read[which], field))
        state = new
    return memories, _named(rule, state, inputs.keyed.kept)


def read(rule: Rule, memory: Mapping[str, Tensor], key: Tensor, raw: Tensor) -> Tensor:
    """M(W, φ) of one vector, a column [B, H, d_v, 1]."""
    return forward(rule.network, memory, key.mT, raw)[rule.network.output]


def _matrices(rule: Rule, state: State, field: str) -> dict[str, Tensor]:
    pairs = zip(rule.network.matrices, state.layers, strict=True)
    return {matrix.name: getattr(layer, field) for matrix, layer in pairs}


# -- one token -------------------------------------------------------------------------------


def _token(rule: Rule, inputs: Inputs, t: int, state: State) -> State:
    """All the steps of one token, then its ends of intervals."""
    optimizer, count = rule.problem.spec.optimizer, inputs.keyed.value.shape[2]
    position = inputs.position[:, t] + 1
    values, pairs = inputs.at(t, 0), state.tail
    for j in range(count):
        values = inputs.at(t, j)
        pairs = state.tail.joined(pair_of(rule, inputs, t, j))
        weighted = pairs
        if inputs.gamma is not None:
            weighted = replace(pairs, gamma=inputs.gamma[:, t].movedim(-1, 1)[..., None, None])
        for i in range(optimizer.inner_steps):
            last = j == count - 1 and i == optimizer.inner_steps - 1
            state = _step(rule, state, weighted, values, position, first=i + j == 0, last=last)
    ends = position % rule.anchor == 0
    layers = []
    for matrix, layer in zip(rule.network.matrices, state.layers, strict=True):
        moved = ends & (position % matrix.every == 0)
        still = rule.anchor == 1
        kept = layer if still else chosen(moved, _settled(rule, matrix, layer, values), layer)
        layers.append(chosen(ends, replace(kept, anchor=kept.memory), layer))
    return State(tuple(layers), pairs.last(rule.window - 1))


def _step(
    rule: Rule, state: State, pairs: Pairs, values: Values, position: Tensor, *, first: bool,
    last: bool,
) -> State:  # fmt: skip
    """G and one move of every matrix; the decoupled decay acts in the first of a token."""
    seen = _seen(rule, state, values, first=first)
    found = _gradient(rule, seen, pairs, values)
    decay = evaluate(rule.decay if first else rule.retained.decay, values)
    layers = []
    for matrix, layer in zip(rule.network.matrices, state.layers, strict=True):
        held = replace(layer, dual=decay * layer.dual)
        if rule.applied.elementwise:
            held = _averaged(rule, held, found[matrix.name], values)
        else:
            stepped = _stepped(rule, matrix, layer, found[matrix.name], values)
            held = replace(held, momentum=stepped)
        used = _used(rule, matrix, held, values)
        ends = (position % matrix.every == 0) & last
        layers.append(used if matrix.every == 1 else chosen(ends, used, held))
    return State(tuple(layers), state.tail)


def _gradient(
    rule: Rule, seen: Mapping[str, Tensor], pairs: Pairs, values: Values
) -> dict[str, Tensor]:
    """Σ γ δ aᵀ of every matrix."""
    total = {name: torch.zeros_like(w) for name, w in seen.items()}
    weight = evaluate(rule.weight, values)
    for i in range(pairs.value.shape[1]):
        key, value = pairs.predict[:, i], pairs.value[:, i]
        known = forward(rule.network, seen, key.mT, pairs.raw[:, i])
        y = known[rule.network.output]
        here = {**values, sym.y: y, sym.v: value, **sizes(y - value, pairs.square[:, i])}
        error = evaluate(rule.error.signal, here) + 0 * y
        written = pairs.write[:, i].mT
        for name, x in gradients(rule.network, seen, known, error, written).items():
            total[name] = total[name] + weight * pairs.gamma[:, i] * x
    return total


def _stepped(
    rule: Rule, matrix: Matrix, layer: Layer, gradient: Tensor, values: Values
) -> Tensor:  # fmt: skip
    """S_t; without momentum the steps since O was last used."""
    rate = 1.0 if rule.applied.outside else evaluate(rule.rate, values)
    if rule.momentum is not None:
        return evaluate(rule.momentum, values) * layer.momentum - rate * gradient
    gathered = layer.momentum if matrix.every > 1 else 0.0
    return gathered - rate * gradient


def _averaged(rule: Rule, layer: Layer, gradient: Tensor, values: Values) -> Layer:
    """Every average X of an expression of g = −G, and the step that reads them."""
    known = {GRADIENT: -gradient}
    found, lefts = [], []
    for average, old, left in zip(rule.applied.averages, layer.averages, layer.left, strict=True):
        decay = evaluate(average.decay, values)
        new, rest = decay * old + (1 - decay) * evaluate(average.entry, known), decay * left
        gathered = 1 - rest if average.corrected else torch.ones_like(rest)
        known |= {average.before: old, average.after: new / torch.where(gathered == 0, 1, gathered)}
        found.append(new)
        lefts.append(rest)
    step = _entrywise(rule.applied.valued, known, values)
    return replace(layer, averages=tuple(found), left=tuple(lefts), step=step)


def _entrywise(step: Any, known: dict[Any, Tensor], values: Values) -> Tensor:
    """The step; 0, and so its derivative, where all that it reads of the gradient is 0.

    What a root is taken of moves from 0, where it has no slope, to 1e-300.
    """
    known = {s: x for s, x in known.items() if s in step.free_symbols}
    empty = reduce(torch.logical_and, [x == 0 for x in known.values()])
    rooted = {p.base for p in step.atoms(sp.Pow) if p.exp == sp.Rational(1, 2)}
    for symbol, x in known.items():
        at_zero = torch.where(x == 0, 1e-300, x) if symbol in rooted else x
        known[symbol] = torch.where(empty, 1.0, at_zero)
    return torch.where(empty, 0.0, evaluate(step, {**values, **known}))


def _used(rule: Rule, matrix: Matrix, layer: Layer, values: Values) -> Layer:
    """A (which has decayed) with O(S), and W of it."""
    scale = evaluate(rule.gain, values)
    if rule.applied.outside:
        scale = scale * evaluate(rule.rate, values)
    step = layer.momentum
    if rule.applied.kind == "newton-schulz":
        step = newton_schulz(step, rule.applied.steps)
    if rule.applied.elementwise:
        step = layer.step
    dual = layer.dual + scale * step
    memory = apply_link(_link(rule, matrix), dual, values)
    momentum = layer.momentum if rule.momentum is not None else torch.zeros_like(dual)
    new = replace(layer, dual=dual, memory=memory, momentum=momentum)
    return _settled(rule, matrix, new, values) if rule.anchor == 1 else new


def _settled(rule: Rule, matrix: Matrix, layer: Layer, values: Values) -> Layer:
    """What acts on W itself: norms, and ∇R(W) in place of A."""
    if rule.applied.normalize != "none" and not behind_kernel(rule, matrix):
        dual = at_norms(centred(rule, layer.dual), layer.norms, rule.applied.normalize)
        layer = replace(layer, dual=dual, memory=apply_link(_link(rule, matrix), dual, values))
    if rule.retained.mode == "prox":
        dual = evaluate(rule.retained.mirror, {**values, sym.w: layer.memory})
        layer = replace(layer, dual=dual)
    return layer


def centred(rule: Rule, matrix: Tensor) -> Tensor:
    """The lines of a matrix without their means, where the norms are those of centred ones."""
    if not rule.applied.centred:
        return matrix
    return matrix - matrix.mean(-1 if rule.applied.normalize == "rows" else -2, keepdim=True)


def behind_kernel(rule: Rule, matrix: Matrix) -> bool:
    """Whether a matrix has a column for each kept pair, and no entries of its own."""
    return rule.kernels is not None and matrix.columns == "D"


def _seen(rule: Rule, state: State, values: Values, *, first: bool) -> dict[str, Tensor]:
    """W_ref: the anchor, the last memory, or (order: before) the decayed one."""
    if rule.anchor > 1:
        return _matrices(rule, state, "anchor")
    if not first or rule.seen == 1:
        return _matrices(rule, state, "memory")
    seen, found = evaluate(rule.seen, values), {}
    for matrix, layer in zip(rule.network.matrices, state.layers, strict=True):
        dual, link = seen * layer.dual, _link(rule, matrix)
        prox = rule.retained.mode == "prox" and link.normaliser == "none"
        decayed = from_dual(rule.retained, dual, values) if prox else apply_link(link, dual, values)
        found[matrix.name] = layer.memory if matrix.every > 1 else decayed
    return found


def _link(rule: Rule, matrix: Matrix) -> Link:
    """The link, with the scale of this matrix where each has its own."""
    own = rule.problem.scalar("scale" + matrix.name.removeprefix("W"))
    return rule.retained.link if own is None else replace(rule.retained.link, scale=own.symbol)


# -- the state by name -----------------------------------------------------------------------


def _first(rule: Rule, inputs: Inputs, start: Named, params: Mapping[str, Tensor]) -> State:
    """The state before the first token: given, or W_0 = link(A_0), or a dual of zero."""
    if rule.kernels is not None:
        start = grown(start, inputs.keyed.predict.shape[-1])
    duals = {m.name: _dual(rule, m, inputs, params) for m in rule.network.matrices}
    layers = [_layer(rule, m, inputs, start, duals[m.name]) for m in rule.network.matrices]
    return State(tuple(layers), tail_of(rule, inputs, start))


def _dual(rule: Rule, matrix: Matrix, inputs: Inputs, params: Mapping[str, Tensor]) -> Tensor:
    """A_0: given, or zero where there is one matrix, or one behind a kernel."""
    key, value = inputs.keyed.predict[:, 0, 0], inputs.keyed.value[:, 0, 0]
    if matrix.name in params:
        given = params[matrix.name].double()
        return given.expand(key.shape[0], *given.shape)
    if len(rule.network.matrices) == 1:
        return torch.zeros_like(value * key)
    if rule.kernels is None or matrix.columns != "D":
        raise ValueError(f"params: missing {matrix.name}")
    outer = next((m.name for m in rule.network.matrices if m.columns == matrix.rows), None)
    rows = value.shape[-2] if outer is None else params[outer].shape[-1]
    return torch.zeros(*key.shape[:2], rows, key.shape[-1], dtype=torch.float64)


def _layer(
    rule: Rule, matrix: Matrix, inputs: Inputs, start: Named, first: Tensor
) -> Layer:  # fmt: skip
    tag, retained, values = matrix.name.removeprefix("W"), rule.retained, inputs.at(0, 0)
    if rule.kernels is not None and matrix.columns == "D":
        start = {n: widened(x, first.shape[-1]) if n.endswith(tag) else x for n, x in start.items()}
    own = f"W{tag}" in start and retained.mode == "dual" and retained.link.identity
    dual = start[f"W{tag}"] if own else start.get(f"A{tag}", first)
    link = _link(rule, matrix)
    free = retained.mode == "prox" and link.normaliser == "none"
    memory = from_dual(retained, dual, values) if free else apply_link(link, dual, values)
    if retained.mode == "prox" and not free and f"A{tag}" not in start:  # B_0 = ∇R(W_0)
        dual = evaluate(retained.mirror, {**values, sym.w: memory})
    if f"W{tag}" in start and not own:
        memory = start[f"W{tag}"]
        dual = start.get(f"A{tag}", evaluate(retained.mirror, {**values, sym.w: memory}))
    memory = start.get(f"held{tag}", memory)
    norms = start.get(f"norms{tag}")
    if norms is None:
        norms = line_norms(centred(rule, first), rule.applied.normalize)
    else:
        norms = norms[..., :, None] if rule.applied.normalize == "rows" else norms[..., None, :]
    zero = torch.zeros_like(dual)
    anchor = start.get(f"anchor{tag}", memory)
    one, lefts = zero[..., :1, :1] + 1, []
    for name in (a.weight for a in rule.applied.averages):
        lefts.append(one - start[name][..., None, None] if name in start else one)
    averages = tuple(start.get(f"{a.state}{tag}", zero) for a in rule.applied.averages)
    momentum = start.get(f"S{tag}", zero)
    return Layer(dual, memory, momentum, anchor, norms, averages, tuple(lefts), zero)


def _named(rule: Rule, state: State, kept: Tensor | None) -> dict[str, Any]:
    """By the names that ``interpret`` documents, only what the rule needs."""
    own = rule.retained.mode == "dual" and rule.retained.link.identity
    found: dict[str, Any] = {}
    for matrix, layer in zip(rule.network.matrices, state.layers, strict=True):
        tag = matrix.name.removeprefix("W")
        found[f"W{tag}"] = layer.dual if own else layer.memory
        if not own:
            found[f"A{tag}"] = layer.dual
        if rule.momentum is not None or matrix.every > 1:
            found[f"S{tag}"] = layer.momentum
        if matrix.every > 1:
            found[f"held{tag}"] = layer.memory
        if rule.anchor > 1:
            found[f"anchor{tag}"] = layer.anchor
        if rule.applied.normalize != "none" and not behind_kernel(rule, matrix):
            found[f"norms{tag}"] = layer.norms.flatten(-2)
        found |= _means_named(rule, layer, tag)
    if kept is not None:
        found["K"] = kept
    return {**found, **named_tail(rule, state.tail)}


def _means_named(rule: Rule, layer: Layer, tag: str) -> Named:
    """Running averages, and the weight that corrected ones have gathered, of every matrix alike."""
    found: Named = {}
    for average, x, left in zip(rule.applied.averages, layer.averages, layer.left, strict=True):
        found[f"{average.state}{tag}"] = x
        if average.corrected:
            found[average.weight] = 1 - left[..., 0, 0]
    return found
