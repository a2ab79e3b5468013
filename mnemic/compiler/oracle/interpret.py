"""A derived rule run token by token in float64: the slow, obvious oracle.

It evaluates the rule's own SymPy expressions and shares nothing with the code generator. It is
differentiable in every tensor argument.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.oracle import interpret_pairs, reference_moments
from mnemic.compiler.oracle.interpret_gradient import read
from mnemic.compiler.oracle.interpret_inputs import Arguments, Inputs, lay_out, unturned
from mnemic.compiler.oracle.interpret_levels import levelled
from mnemic.compiler.oracle.interpret_run import Named, recurrence
from mnemic.compiler.rule import KeyValuePairs, Levels, Moments, Rule

Reader: TypeAlias = Callable[[Rule, Named, Tensor, Tensor], Tensor]


def interpret(
    rule: Rule, q: Tensor, k: Tensor, v: Tensor, coefficients: Arguments,
    *, initial_state: Mapping[str, Tensor] | None = None, mask: Tensor | None = None,
    params: Mapping[str, Tensor] | None = None,
) -> tuple[Tensor, Named]:  # fmt: skip
    """Return the outputs [B, T, H, d_v] and the state after the last token.

    ``coefficients`` are the operator's arguments by name, in the shapes of the operator's
    contract (a learned one may be given as [H] or [H, D]); ``mask`` [B, T] is false where a token
    leaves the state untouched (its output is what the memory held before would say); ``params``
    the initial duals of a memory with layers, name → [H, rows, columns].

    State: ``W`` (under an identity link), or ``A`` and ``W``; ``S``; ``anchor``; ``angle``;
    ``position``; ``tail.…`` of the window; ``n.…`` of the normaliser, ``slots.…`` of the
    companion memory; ``H``, ``U``, ``ridge`` of exact and batch solutions. Each has W's layout,
    [B, H, d_v, D] (a diagonal memory: [B, H, d, 1], a complex one the parts of e^{−iΩ}W, real ones
    first); under levels W is
    [B, H, L, d_v, D], a memory for each level above the token's own. Behind a kernel W has a
    column for each kept pair, and the state their keys ``K`` and coefficients ``shares``; fitted
    pairs have the operator's states, [B, H, n, …]. Layers number theirs (``W1``, ``S1``,
    ``anchor1``, …), with ``held1`` the memory since O was last used and ``norms1`` its lines';
    running averages are numbered too (Adam's ``S1``, ``squares1``), their weights are not.
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
    if isinstance(rule, KeyValuePairs):
        y, own = interpret_pairs.run(rule, inputs, start)
        return y, {**own, **state}
    y, own = _run(rule, inputs, start, read, params=params or {})
    if rule.problem.spec.readout.normalizer != "none":
        weight, extra = _normalizer(rule, inputs, _inside(start, "n."))
        y = torch.where(weight == 0, 0.0, y / torch.where(weight == 0, 1.0, weight))
        state |= extra
    if inputs.angle is not None and rule.diagonal:
        y = unturned(y, inputs.angle)
    return y, {**own, **state}


def _next_position(inputs: Inputs, start: Named) -> Tensor:
    first = start.get("position", torch.zeros_like(inputs.position[:, 0]))
    return first + inputs.mask.long().sum(1)


def _inside(state: Named, prefix: str) -> Named:
    shared = {n: x for n, x in state.items() if n == "position"}
    return shared | {n[len(prefix) :]: x for n, x in state.items() if n.startswith(prefix)}


def _through_slots(rule: Rule, inputs: Inputs, start: Named) -> tuple[Inputs, Named]:
    """Return inputs with q' = softmax(K_t φ(q)), and the state of K, which keeps φ(k) as W does."""

    def ask(_: Rule, memories: Named, query: Tensor, __: Tensor) -> Tensor:
        (memory,) = memories.values()
        logits = (memory * query.transpose(-1, -2)).sum(-2, keepdim=True)
        return torch.softmax(logits, -1)

    keyed = replace(inputs.keyed, value=inputs.keyed.key)
    y, state = _run(rule, _without_rows(replace(inputs, keyed=keyed)), start, ask, flat=False)
    found = tuple(y[:, :, None, g] for g in range(y.shape[2]))
    keyed = replace(inputs.keyed, queries=found)
    return replace(inputs, keyed=keyed), {f"slots.{n}": x for n, x in state.items()}


def _normalizer(rule: Rule, inputs: Inputs, start: Named) -> tuple[Tensor, Named]:
    """Return the sum of the weights that values carry, and its state, by the rule fed with ones."""
    ones = torch.ones_like(inputs.keyed.value[..., :1, :])
    keyed = replace(inputs.keyed, value=ones)
    weight, state = _run(rule, _without_rows(replace(inputs, keyed=keyed)), start, read)
    if rule.problem.spec.readout.normalizer == "max1":
        weight = weight.abs().clamp_min(1.0)
    return weight, {f"n.{n}": x for n, x in state.items()}


def _without_rows(inputs: Inputs) -> Inputs:
    """Set the row decay to one: it belongs to the values, not to the ones that replace them."""
    plain = {**inputs.values, sym.coefficient("beta"): torch.ones(1, 1, 1, 1, 1, 1).double()}
    return replace(inputs, values=plain)


def _run(
    rule: Rule, inputs: Inputs, start: Named, reader: Reader, *, flat: bool = True,
    params: Mapping[str, Tensor] = MappingProxyType({}),
) -> tuple[Tensor, Named]:  # fmt: skip
    """Return every read-out, [B, T, H, d_v] (or [B, T, group, H, …]), and the last state."""
    keyed, length = inputs.keyed, inputs.mask.shape[1]
    match rule:
        case Moments():
            memories, final = reference_moments.run(rule, inputs, start)
        case Levels():
            memories, final = levelled(rule, inputs, start)
        case _:
            memories, final = recurrence(rule, inputs, start, params)
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
    """Compute v (u ∘ φ(k))·φ(q) of token t."""
    u = inputs.at(t, 0)[sym.coefficient("bonus")]
    keyed = inputs.keyed
    return keyed.value[:, t, 0] * (u * keyed.write[:, t, 0] * query[:, t, 0]).sum(-1, keepdim=True)
