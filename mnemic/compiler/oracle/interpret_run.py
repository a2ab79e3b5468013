"""The recurrence of a rule over a sequence: token by token, micro-step by micro-step."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.network import Matrix
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret_averages import averages_named, first_averages
from mnemic.compiler.oracle.interpret_gradient import link_of, opened
from mnemic.compiler.oracle.interpret_inputs import Inputs
from mnemic.compiler.oracle.interpret_state import (
    Counts,
    Layer,
    Pairs,
    State,
    chosen,
    counted,
)  # fmt: skip
from mnemic.compiler.oracle.interpret_step import micro_step, norms_of, settled
from mnemic.compiler.oracle.reference_kernels import similarities
from mnemic.compiler.oracle.reference_links import rest
from mnemic.compiler.rule import Rule

Named: TypeAlias = dict[str, Tensor]

TAIL = ("predict", "erase", "write", "value", "raw", "square", "column", "gamma")


def recurrence(
    rule: Rule, inputs: Inputs, start: Named, params: Mapping[str, Tensor]
) -> tuple[list[Named], Named]:
    """Return the matrices that each token's query reads, by name, and the last state."""
    held = any(matrix.every > 1 for matrix in rule.network.matrices)
    if held and rule.split and rule.momentum_on == "write":
        raise ValueError("momentum on the write of a memory that is held is not interpreted")
    state = _first(rule, inputs, start, params)
    memories = []
    for t in range(inputs.mask.shape[1]):
        new = chosen(inputs.mask[:, t], _token(rule, inputs, t, state), state)
        memories.append(_readable(rule, state, new))
        state = new
    found = _named(rule, state)
    return memories, found if inputs.keyed.kept is None else {**found, "K": inputs.keyed.kept}


def _readable(rule: Rule, old: State, new: State) -> Named:
    """Return the matrices that a token's query reads."""
    which = rule.problem.spec.readout.memory
    state = new if which == "after" else old
    return {
        matrix.name: counted(layer, "anchor" if which == "anchor" else "memory")
        for matrix, layer in zip(rule.network.matrices, state.layers, strict=True)
    }


def _token(rule: Rule, inputs: Inputs, t: int, state: State) -> State:
    """Take all the micro-steps of one token, then close the intervals that end with it."""
    inner, count = rule.problem.spec.optimizer.inner_steps, inputs.keyed.value.shape[2]
    if count > 1 and rule.window > 1:
        raise ValueError("micro-steps within a window have no meaning")
    position, values, pairs = inputs.position[:, t] + 1, inputs.at(t, 0), state.tail
    for j in range(count):
        values = inputs.at(t, j)
        pairs = state.tail.joined(pair_of(rule, inputs, t, j))
        weighted = pairs
        if inputs.gamma is not None:
            weighted = replace(pairs, gamma=inputs.gamma[:, t].movedim(-1, 1)[..., None, None])
        for i in range(inner):
            last = j == count - 1 and i == inner - 1
            state = micro_step(rule, state, weighted, values, position, first=i + j == 0, last=last)
    ends = position % rule.anchor == 0
    layers = []
    for matrix, layer in zip(rule.network.matrices, state.layers, strict=True):
        moved = ends & (position % matrix.every == 0)
        kept = layer if rule.anchor == 1 else chosen(
            moved, settled(rule, matrix, layer, values), layer
        )  # fmt: skip
        counts = kept.counts and replace(kept.counts, anchor=kept.counts.memory)
        layers.append(chosen(ends, replace(kept, anchor=kept.memory, counts=counts), layer))
    return State(tuple(layers), pairs.last(rule.window - 1))


def pair_of(rule: Rule, inputs: Inputs, t: int, j: int) -> Pairs:
    """Return one micro-step's vectors, a window of one."""
    keyed = inputs.keyed
    vectors = (keyed.predict, keyed.erase, keyed.write, keyed.value, keyed.raw)
    predict, erase, write, value, raw = (x[:, t, j][:, None] for x in vectors)
    square = (predict**2).sum(-1, keepdim=True)
    if keyed.square is not None:
        square = keyed.square[:, t, j][:, None]
    gamma = torch.ones_like(value[..., :1, :1])
    if rule.gamma == "token" and rule.window > 1:
        gamma = gamma * inputs.at(t, j)[sym.coefficient("gamma")][:, None]
    column = keyed.key[:, t, j][:, None].transpose(-1, -2)
    return Pairs(predict, erase, write, value, raw, square, column, gamma)


# -- the state by name -----------------------------------------------------------------------


def _first(rule: Rule, inputs: Inputs, start: Named, params: Mapping[str, Tensor]) -> State:
    """Return the state before the first token: given, or W_0 = link(A_0), or a dual of zero."""
    if rule.kernels is not None:
        start = _grown(rule, start, inputs.keyed.predict.shape[-1])
    layers = [_layer(rule, m, inputs, start, params) for m in rule.network.matrices]
    return State(tuple(layers), _tail_of(rule, inputs, start))


def _dual(
    rule: Rule, matrix: Matrix, inputs: Inputs, start: Named, params: Mapping[str, Tensor]
) -> Tensor:
    """Return A_0: given, or zero where there is one matrix, or one behind a kernel."""
    key, value = inputs.keyed.write[:, 0, 0], inputs.keyed.value[:, 0, 0]
    if matrix.name in params:
        given = params[matrix.name].double()
        return given.expand(key.shape[0], *given.shape)
    alone, tag = len(rule.network.matrices) == 1, rule.tag(matrix)
    if matrix in rule.parameters and not (alone and start.keys() & {f"A{tag}", f"W{tag}"}):
        raise ValueError(f"params: missing {matrix.name}")
    if alone:
        return torch.zeros_like(value * key)
    outer = next((m.name for m in rule.network.matrices if m.columns == matrix.rows), None)
    rows = value.shape[-2] if outer is None else params[outer].shape[-1]
    return torch.zeros(*key.shape[:2], rows, key.shape[-1], dtype=torch.float64)


def _layer(
    rule: Rule, matrix: Matrix, inputs: Inputs, start: Named, params: Mapping[str, Tensor]
) -> Layer:
    tag, retained, values = rule.tag(matrix), rule.retained, inputs.at(0, 0)
    own = {name: start.get(f"{name}{tag}") for name in ("W", "A", "S", "held", "anchor", "norms")}
    first = _dual(rule, matrix, inputs, start, params)
    zero, memory, dual = torch.zeros_like(first), own["W"], own["A"]
    if dual is None and memory is not None:  # the state is W alone
        dual = memory if retained.mode == "dual" and retained.link.identity else None
    elif dual is None:
        dual = first
    if memory is None and own["A"] is None and matrix.name not in params:
        memory = rest(retained, zero.shape, values)
    if memory is None:
        assert dual is not None
        memory = opened(rule, link_of(rule, matrix, stepped=False), dual, values)
    bound = retained.mode == "prox" and retained.link.normaliser != "none"
    begins = own["A"] is None and len(rule.network.matrices) > 1
    if dual is None or (bound and begins):  # B_0 = ∇R(W_0)
        dual = evaluate(retained.mirror, {**values, sym.w: memory})
    memory = memory if own["held"] is None else own["held"]
    return Layer(
        dual=dual,
        memory=memory,
        momentum=zero if own["S"] is None else own["S"],
        anchor=memory if own["anchor"] is None else own["anchor"],
        norms=_first_norms(rule, matrix, own["norms"], first),
        averages=first_averages(rule, tag, zero, start),
        counts=_first_counts(rule, zero[..., :1, :], start),
    )


def _first_norms(
    rule: Rule, matrix: Matrix, given: Tensor | None, first: Tensor
) -> Tensor | None:  # fmt: skip
    """Return the norms that the lines are scaled back to: those of the first dual."""
    if rule.applied.normalize == "none" or rule.keeps_rows(matrix):
        return None
    if given is None:
        return norms_of(rule, first)
    return given[..., :, None] if rule.applied.normalize == "rows" else given[..., None, :]


def _first_counts(rule: Rule, zeros: Tensor, start: Named) -> Counts | None:
    if rule.kernels is None or not rule.kernels.normalised:
        return None
    return Counts(*(start.get(name, zeros) for name in ("shares", "S_shares", "anchor_shares")))


def _grown(rule: Rule, start: Named, columns: int) -> Named:
    """Extend a state by a column of zeros for each pair that the sequence will add."""
    tags = [rule.tag(m) for m in rule.network.matrices if rule.keeps_rows(m)]
    names = {f"{name}{tag}" for name in ("W", "A", "S", "anchor") for tag in tags}
    names |= {"shares", "S_shares", "anchor_shares"}
    wide = {n: x for n, x in start.items() if n in names or n.startswith("tail.")}
    return {**start, **{n: _widened(x, columns) for n, x in wide.items()}}


def _widened(x: Tensor, columns: int) -> Tensor:
    """Pad with columns of zeros on the right; a single column stays as it is."""
    return torch.nn.functional.pad(x, (0, columns - x.shape[-1] if x.shape[-1] > 1 else 0))


def _tail_of(rule: Rule, inputs: Inputs, start: Named) -> Pairs:
    """Return the last c − 1 tokens of the start, zero before the first."""
    blank = pair_of(rule, inputs, 0, 0)
    size = rule.window - 1
    found = []
    for name in TAIL:
        x = torch.zeros_like(getattr(blank, name)).expand(-1, size, -1, -1, -1)
        found.append(start.get(f"tail.{name}", x))
    tail, kept = Pairs(*found), inputs.keyed.kept
    if rule.kernels is None or kept is None:
        return tail
    seen = similarities(rule.kernels.predict, tail.raw[..., 0], kept)  # later keys too
    return replace(tail, predict=seen[..., None, :])


def _named(rule: Rule, state: State) -> Named:
    """Name the parts of a state as ``interpret`` documents, only those that the rule needs."""
    linked = rule.retained.mode != "multiplicative" and not rule.retained.link.identity
    found: Named = {}
    for matrix, layer in zip(rule.network.matrices, state.layers, strict=True):
        parts: dict[str, Tensor | None] = {
            "W": layer.memory if linked or rule.retained.mode != "dual" else layer.dual,
            "A": layer.dual if linked else None,
            "S": layer.momentum if rule.momentum is not None or matrix.every > 1 else None,
            "held": layer.memory if matrix.every > 1 else None,
            "anchor": layer.anchor if rule.anchor > 1 else None,
            "norms": None if layer.norms is None else layer.norms.flatten(-2),
        }
        tag = rule.tag(matrix)
        found |= {f"{name}{tag}": x for name, x in parts.items() if x is not None}
        found |= averages_named(rule, layer.averages, tag)
        if layer.counts is not None:
            found |= {"shares": layer.counts.memory, "S_shares": layer.counts.momentum}
            found["anchor_shares"] = layer.counts.anchor
    return found | _tail_named(rule, state.tail)


def _tail_named(rule: Rule, tail: Pairs) -> Named:
    """Name the parts of the window's tail."""
    return {f"tail.{name}": getattr(tail, name) for name in TAIL} if rule.window > 1 else {}
