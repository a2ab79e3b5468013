"""A derived rule run token by token in float64: the slow, obvious oracle.

It evaluates the rule's own SymPy expressions and shares nothing with the code generator. It is
differentiable in every tensor argument.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from mnemic.compiler import reference_moments
from mnemic.compiler import symbols as sym
from mnemic.compiler.evaluate import evaluate
from mnemic.compiler.interpret_inputs import Arguments, Inputs, lay_out
from mnemic.compiler.interpret_step import Pairs, State, chosen, micro_step, mirrored, read
from mnemic.compiler.reference_links import apply_link, from_dual, rest
from mnemic.compiler.rule import Rule

Named: TypeAlias = dict[str, Tensor]
Reader: TypeAlias = Callable[[Rule, Tensor, Tensor, Tensor], Tensor]

TAIL = ("predict", "erase", "write", "value", "raw", "gamma")


def interpret(
    rule: Rule, q: Tensor, k: Tensor, v: Tensor, coefficients: Arguments,
    *, initial_state: Mapping[str, Tensor] | None = None, mask: Tensor | None = None,
) -> tuple[Tensor, Named]:  # fmt: skip
    """The outputs [B, T, H, d_v] and the state after the last token.

    ``coefficients`` are the operator's arguments by name, in the shapes of the operator's
    contract (a learned one may be given as [H] or [H, D]); ``mask`` [B, T] is false where a token
    leaves the state untouched (its output is what the memory held before would say).

    State: ``W`` (under an identity link), or ``A`` and ``W``; ``S``; ``anchor``; ``angle``;
    ``position``; ``tail.…`` of the window; ``n.…`` of the normaliser, ``slots.…`` of the
    companion memory; ``H``, ``U``, ``ridge`` of exact and batch solutions. Each has W's layout,
    [B, H, d_v, D] (a diagonal memory: [B, H, d, 1], or 2 for 1 under a phase).
    """
    start = {name: x.double() for name, x in (initial_state or {}).items() if name != "position"}
    if initial_state and "position" in initial_state:
        start["position"] = initial_state["position"].long()
    inputs = lay_out(rule, q, k, v, coefficients, start, mask)
    state: Named = {"position": _next_position(inputs, start)}
    if inputs.angle is not None:
        state["angle"] = inputs.angle[:, -1, 0]
    if getattr(rule.problem.spec.memory, "slots", None) is not None:
        inputs, extra = _through_slots(rule, inputs, _inside(start, "slots."))
        state |= extra
    y, own = _run(rule, inputs, start, read)
    if rule.problem.spec.readout.normalizer != "none":
        weight, extra = _normalizer(rule, inputs, _inside(start, "n."))
        y = y / weight
        state |= extra
    return y, {**own, **state}


def _next_position(inputs: Inputs, start: Named) -> Tensor:
    first = start.get("position", torch.zeros_like(inputs.position[:, 0]))
    return first + inputs.mask.long().sum(1)


def _inside(state: Named, prefix: str) -> Named:
    shared = {n: x for n, x in state.items() if n == "position"}
    return shared | {n[len(prefix) :]: x for n, x in state.items() if n.startswith(prefix)}


def _through_slots(rule: Rule, inputs: Inputs, start: Named) -> tuple[Inputs, Named]:
    """q' = softmax(K_t φ(q)): the companion memory keeps φ(k) under the same gates."""

    def ask(_: Rule, memory: Tensor, query: Tensor, __: Tensor) -> Tensor:
        logits = (memory * query.transpose(-1, -2)).sum(-2, keepdim=True)
        return torch.softmax(logits, -1)

    keyed = replace(inputs.keyed, value=inputs.keyed.key)
    y, state = _run(rule, _without_rows(replace(inputs, keyed=keyed)), start, ask, flat=False)
    found = tuple(y[:, :, None, g] for g in range(y.shape[2]))
    keyed = replace(inputs.keyed, queries=found)
    return replace(inputs, keyed=keyed), {f"slots.{n}": x for n, x in state.items()}


def _normalizer(rule: Rule, inputs: Inputs, start: Named) -> tuple[Tensor, Named]:
    """Σ of the weights that the values carry: the same rule fed with ones."""
    ones = torch.ones_like(inputs.keyed.value[..., :1, :])
    keyed = replace(inputs.keyed, value=ones)
    weight, state = _run(rule, _without_rows(replace(inputs, keyed=keyed)), start, read)
    if rule.problem.spec.readout.normalizer == "max1":
        weight = weight.abs().clamp_min(1.0)
    return weight, {f"n.{n}": x for n, x in state.items()}


def _without_rows(inputs: Inputs) -> Inputs:
    """Row decay belongs to the values, not to what stands in for them."""
    plain = {**inputs.values, sym.coefficient("beta"): torch.ones(1, 1, 1, 1, 1, 1).double()}
    return replace(inputs, values=plain)


def _run(
    rule: Rule, inputs: Inputs, start: Named, reader: Reader, flat: bool = True
) -> tuple[Tensor, Named]:
    """Every read-out, [B, T, H, d_v] (or [B, T, group, H, …]), and the last state."""
    keyed, length = inputs.keyed, inputs.mask.shape[1]
    if rule.moments is not None:
        memories, final = reference_moments.run(rule, rule.moments, inputs, start)
    else:
        memories, final = _recurrence(rule, inputs, start)
    rows = []
    for t in range(length):
        pairs = zip(keyed.queries, keyed.raw_queries, strict=True)
        found = [reader(rule, memories[t], x[:, t, 0], raw[:, t, 0]) for x, raw in pairs]
        if rule.problem.spec.readout.bonus is not None:
            found = [y + _bonus(inputs, t, x) for y, x in zip(found, keyed.queries, strict=True)]
        rows.append(torch.stack(found, 1))
    y = torch.stack(rows, 1)
    return (y.transpose(2, 3).flatten(2, 3)[..., 0] if flat else y), final


def _bonus(inputs: Inputs, t: int, query: Tensor) -> Tensor:
    """v (u ∘ φ(k))·φ(q)."""
    u = inputs.at(t, 0)[sym.coefficient("bonus")]
    keyed = inputs.keyed
    return keyed.value[:, t, 0] * (u * keyed.write[:, t, 0] * query[:, t, 0]).sum(-1, keepdim=True)


def _recurrence(rule: Rule, inputs: Inputs, start: Named) -> tuple[list[Tensor], Named]:
    """The memory that each token's query reads, and the last state."""
    state = _first(rule, inputs, start)
    memories = []
    for t in range(inputs.mask.shape[1]):
        new = _token(rule, inputs, t, state)
        new = chosen(inputs.mask[:, t], new, state)
        which = rule.problem.spec.readout.memory
        memories.append(
            {"after": new.memory, "before": state.memory, "anchor": state.anchor}[which]
        )
        state = new
    return memories, _named(rule, state)


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
        pairs = state.tail.joined(_pair(rule, inputs, t, j))
        weighted = pairs
        if inputs.gamma is not None:
            weighted = replace(pairs, gamma=inputs.gamma[:, t].movedim(-1, 1)[..., None, None])
        for _ in range(optimizer.inner_steps):
            state = micro_step(rule, state, weighted, values, first=first)
            first = False
    state = replace(state, tail=pairs.last(rule.window - 1))
    ends = (inputs.position[:, t] + 1) % rule.anchor == 0
    closed = mirrored(rule, replace(state, anchor=state.memory), values)
    last: State = chosen(ends, closed, state)
    return last


def _pair(rule: Rule, inputs: Inputs, t: int, j: int) -> Pairs:
    keyed = inputs.keyed
    vectors = (keyed.predict, keyed.erase, keyed.write, keyed.value, keyed.raw)
    predict, erase, write, value, raw = (x[:, t, j][:, None] for x in vectors)
    gamma = torch.ones_like(value[..., :1, :1])
    if rule.gamma == "token" and rule.window > 1:
        gamma = gamma * inputs.at(t, j)[sym.coefficient("gamma")][:, None]
    return Pairs(predict, erase, write, value, raw, gamma)


def _first(rule: Rule, inputs: Inputs, start: Named) -> State:
    """The state before the first token; what is missing starts at zero in the dual."""
    keyed, values, retained = inputs.keyed, inputs.at(0, 0), rule.retained
    shape = (keyed.value[:, 0, 0] * keyed.write[:, 0, 0]).shape
    zeros = torch.zeros(shape, dtype=torch.float64)
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
    tail = _tail(rule, inputs, start)
    anchor = start.get("anchor", memory)
    return State(dual, memory, start.get("S", zeros), anchor, tail)


def _tail(rule: Rule, inputs: Inputs, start: Named) -> Pairs:
    """The last c − 1 tokens, zero before the first."""
    blank = _pair(rule, inputs, 0, 0)
    size = rule.window - 1
    found = []
    for name in TAIL:
        x = torch.zeros_like(getattr(blank, name)).expand(-1, size, -1, -1, -1)
        found.append(start.get(f"tail.{name}", x))
    return Pairs(*found)


def _named(rule: Rule, state: State) -> Named:
    """The state by the names that ``interpret`` documents, only what the rule needs."""
    found = {"W": state.memory}
    if rule.retained.mode != "multiplicative" and not rule.retained.link.identity:
        found["A"] = state.dual
    if rule.momentum is not None:
        found["S"] = state.momentum
    if rule.anchor > 1:
        found["anchor"] = state.anchor
    if rule.window > 1:
        found |= {f"tail.{name}": getattr(state.tail, name) for name in TAIL}
    return found
