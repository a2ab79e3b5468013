"""The recurrence of a rule over a sequence: token by token, micro-step by micro-step."""

from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret_inputs import Inputs
from mnemic.compiler.oracle.interpret_step import (
    Counts,
    Pairs,
    State,
    chosen,
    counted,
    micro_step,
    mirrored,
)  # fmt: skip
from mnemic.compiler.oracle.reference_kernels import similarities
from mnemic.compiler.oracle.reference_links import apply_link, from_dual, rest
from mnemic.compiler.rule import Rule

Named: TypeAlias = dict[str, Tensor]

TAIL = ("predict", "erase", "write", "value", "raw", "square", "column", "gamma")


def recurrence(rule: Rule, inputs: Inputs, start: Named) -> tuple[list[Tensor], Named]:
    """The memory that each token's query reads, and the last state."""
    state = _first(rule, inputs, start)
    memories = []
    for t in range(inputs.mask.shape[1]):
        new = _token(rule, inputs, t, state)
        new = chosen(inputs.mask[:, t], new, state)
        memories.append(_readable(rule, state, new))
        state = new
    found = _named(rule, state)
    return memories, found if inputs.keyed.kept is None else {**found, "K": inputs.keyed.kept}


def _readable(rule: Rule, old: State, new: State) -> Tensor:
    """The memory that a token's query reads."""
    which = rule.problem.spec.readout.memory
    memory = {"after": new.memory, "before": old.memory, "anchor": old.anchor}[which]
    if new.counts is None or old.counts is None:
        return memory
    counts = {
        "after": new.counts.memory, "before": old.counts.memory, "anchor": old.counts.anchor,
    }  # fmt: skip
    return counted(memory, counts[which])


def _token(rule: Rule, inputs: Inputs, t: int, state: State) -> State:
    """All the micro-steps of one token, then its end of chunk."""
    optimizer = rule.problem.spec.optimizer
    count = inputs.keyed.value.shape[2]
    if count > 1 and rule.window > 1:
        raise ValueError("micro-steps within a window have no meaning")
    first, values = True, inputs.at(t, 0)
    pairs = state.tail
    for j in range(count):
        values = inputs.at(t, j)
        pairs = state.tail.joined(pair_of(rule, inputs, t, j))
        weighted = pairs
        if inputs.gamma is not None:
            weighted = replace(pairs, gamma=inputs.gamma[:, t].movedim(-1, 1)[..., None, None])
        for _ in range(optimizer.inner_steps):
            state = micro_step(rule, state, weighted, values, first=first)
            first = False
    state = replace(state, tail=pairs.last(rule.window - 1))
    ends = (inputs.position[:, t] + 1) % rule.anchor == 0
    counts = state.counts
    if counts is not None:
        counts = replace(counts, anchor=counts.memory)
    closed = mirrored(rule, replace(state, anchor=state.memory, counts=counts), values)
    last: State = chosen(ends, closed, state)
    return last


def pair_of(rule: Rule, inputs: Inputs, t: int, j: int) -> Pairs:
    """One micro-step's vectors, a window of one."""
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


def _first(rule: Rule, inputs: Inputs, start: Named) -> State:
    """The state before the first token; what is missing starts at zero in the dual."""
    keyed, values, retained = inputs.keyed, inputs.at(0, 0), rule.retained
    shape = (keyed.value[:, 0, 0] * keyed.write[:, 0, 0]).shape
    zeros = torch.zeros(shape, dtype=torch.float64)
    start = grown(start, shape[-1]) if rule.kernels is not None else start
    memory, dual = start.get("W"), start.get("A")
    if memory is None and dual is None:
        memory = rest(retained, shape, values)
    if memory is None:
        assert dual is not None
        prox = retained.mode == "prox"
        memory = (
            from_dual(retained, dual, values) if prox else apply_link(retained.link, dual, values)
        )
    if dual is None:
        dual = memory if retained.mode == "dual" and retained.link.identity else zeros
        dual = evaluate(retained.mirror, {**values, sym.w: memory}) if "W" in start else dual
    tail = tail_of(rule, inputs, start)
    anchor = start.get("anchor", memory)
    counts = _first_counts(rule, zeros[..., :1, :], start)
    return State(dual, memory, start.get("S", zeros), anchor, tail, counts)


def grown(start: Named, columns: int) -> Named:
    """A state with a column of zeros for each pair that is not kept yet."""
    names = ("W", "A", "S", "anchor", "shares", "S_shares", "anchor_shares")
    wide = {n: x for n, x in start.items() if n in names or n.startswith("tail.")}
    return {**start, **{n: widened(x, columns) for n, x in wide.items()}}


def widened(x: Tensor, columns: int) -> Tensor:
    """Zeros on the right, but for what is one column by itself."""
    return torch.nn.functional.pad(x, (0, columns - x.shape[-1] if x.shape[-1] > 1 else 0))


def _first_counts(rule: Rule, zeros: Tensor, start: Named) -> Counts | None:
    if rule.kernels is None or not rule.kernels.normalised:
        return None
    return Counts(*(start.get(name, zeros) for name in ("shares", "S_shares", "anchor_shares")))


def tail_of(rule: Rule, inputs: Inputs, start: Named) -> Pairs:
    """The last c − 1 tokens, zero before the first."""
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
    """The state by the names that ``interpret`` documents, only what the rule needs."""
    found = {"W": state.memory}
    if rule.retained.mode != "multiplicative" and not rule.retained.link.identity:
        found["A"] = state.dual
    if rule.momentum is not None:
        found["S"] = state.momentum
    if rule.anchor > 1:
        found["anchor"] = state.anchor
    if state.counts is not None:
        counts = state.counts
        found |= {"shares": counts.memory, "S_shares": counts.momentum}
        found["anchor_shares"] = counts.anchor
    return found | named_tail(rule, state.tail)


def named_tail(rule: Rule, tail: Pairs) -> Named:
    """The window's tail by name."""
    return {f"tail.{name}": getattr(tail, name) for name in TAIL} if rule.window > 1 else {}
