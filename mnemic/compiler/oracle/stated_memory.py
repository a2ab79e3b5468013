"""The memory of the problem as written, token by token: what each query of one head reads.

G_t is autograd's gradient of the summed loss of the window at W_ref, and the retention is minimised
numerically. Under levels every token's share of the memory is carried by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mnemic.compiler.oracle.stated_phase import Turn
from mnemic.compiler.oracle.stated_retention import (
    decays_only,
    diverge,
    dual_of,
    plain,
    resting,
    retain,
)
from mnemic.compiler.oracle.stated_steps import (
    Pair,
    contracting,
    gradient,
    past_solution,
    whole_step,
)
from mnemic.compiler.oracle.stated_tokens import Token
from mnemic.compiler.oracle.statement import penalty_rate, tensor
from mnemic.dsl.spec import Spec


@dataclass(frozen=True)
class Memory:
    """What is carried along: W, its dual, the momentum, W at the last chunk end, the past."""

    matrix: Tensor
    dual: Tensor
    momentum: Tensor
    anchor: Tensor
    past: tuple[Pair, ...] = ()


def memories(
    spec: Spec, sequence: list[list[Token]], dual: Tensor | None = None
) -> list[Tensor]:  # fmt: skip
    """Return the memory that each token's query reads, from a dual of zero unless it is given."""
    if "levels" in spec.named_coefficients():
        return _levelled(spec, sequence)
    memory, found = _start(spec, sequence[0][0], dual), []
    for t, micro in enumerate(sequence):
        memory = _turned(memory, micro[0].turn)
        held = {"before": memory.matrix, "anchor": memory.anchor}
        for token in micro:
            memory = learn(spec, memory, token, decays=token is micro[0])
        found.append(held.get(spec.readout.memory, memory.matrix))
        if (t + 1) % spec.optimizer.anchor.chunk == 0:
            dual = _remirrored(spec, memory, micro[-1].names)
            memory = replace(memory, anchor=memory.matrix, dual=dual)
    return found


def _turned(memory: Memory, turn: Turn | None) -> Memory:
    """Turn all that a complex memory carries by the token's phase."""
    if turn is None:
        return memory
    parts = (memory.matrix, memory.dual, memory.momentum, memory.anchor)
    matrix, dual, momentum, anchor = map(turn, parts)
    return replace(memory, matrix=matrix, dual=dual, momentum=momentum, anchor=anchor)


def _levelled(spec: Spec, sequence: list[list[Token]]) -> list[Tensor]:
    """Weigh each token's write by its level: a memory a token.

    A step is affine in the memory, so a share of it goes on as step(W) − step(0).
    """
    first = sequence[0][0]
    nothing, shares, found = _start(spec, first), list[Memory](), []
    for t, (token,) in enumerate(sequence):
        own = learn(spec, nothing, token, decays=True)
        steps = (learn(spec, share, token, decays=True) for share in shares)
        kept = [(step.matrix - own.matrix, step.dual - own.dual) for step in steps]
        written = [*kept, (own.matrix, own.dual)]
        shares = [replace(nothing, matrix=matrix, dual=dual) for matrix, dual in written]
        weights = token.names["levels"].expand(spec.readout.max_levels)
        seen = [weights[(s ^ t).bit_length()] * w.matrix for s, w in enumerate(shares)]
        found.append(torch.stack(seen).sum(0))
    return found


def _start(spec: Spec, token: Token, dual: Tensor | None = None) -> Memory:
    if dual is not None:
        matrix = dual if plain(spec) else retain(spec, dual, tensor(0), token.names)
        return Memory(matrix, dual, torch.zeros_like(dual), matrix)
    write, value = token.pair.write, token.pair.value
    diagonal = type(spec.memory).word() == "diagonal"
    shape = torch.Size([len(value), 1 if diagonal else len(write)])
    zero = torch.zeros(shape, dtype=torch.float64)
    solves = spec.optimizer.method in ("exact", "batch")
    matrix = zero if solves or plain(spec) else resting(spec, shape, token.names)
    return Memory(matrix, zero, zero, matrix)


def _remirrored(spec: Spec, memory: Memory, names: Mapping[str, Tensor]) -> Tensor:
    """Return ∇R(W) in the learning-retaining view; the leader keeps its sum."""
    leader = spec.retention.view == "ftrl" or spec.retention.global_.norm is not None
    return memory.dual if leader else dual_of(spec, memory.matrix, names)


def learn(spec: Spec, memory: Memory, token: Token, *, decays: bool) -> Memory:
    """Take one token, or one micro-step of it, with all its inner steps."""
    optimizer = spec.optimizer
    past = (*memory.past, token.pair)
    if optimizer.method in ("exact", "batch"):
        matrix = past_solution(spec, past, token.names)
        return replace(memory, matrix=matrix, past=past)
    past = past[-spec.window :] if isinstance(spec.window, int) else past
    for _ in range(optimizer.inner_steps):
        memory = _inner(spec, replace(memory, past=past), token, decays=decays)
        decays = False
    return memory


def _inner(spec: Spec, memory: Memory, token: Token, *, decays: bool) -> Memory:
    names, one = token.names, tensor(1)
    decay = names.get("alpha", one) * names.get("beta", one) if decays else one
    reference = _reference(spec, memory, token, decay if decays else one)
    momentum, step = memory.momentum, torch.zeros_like(memory.matrix)
    if spec.optimizer.method in ("implicit", "flow"):
        step = whole_step(spec, reference, memory.past[-1], names)
    else:
        whole, write = gradient(spec, reference, memory.past, names)
        rate, theta = names["eta"], spec.optimizer.momentum
        if spec.optimizer.rate.normalized:
            rate = rate / contracting(spec, reference, memory.past[-1], names)
        step = -rate * whole
        if theta is not None:
            on_write = theta.on == "write"
            momentum = names["theta"] * momentum - rate * (write if on_write else whole)
            step = momentum - rate * (whole - write) if on_write else momentum
    dual = decay * memory.dual + step
    if spec.retention.local.divergence is not None:
        matrix = diverge(spec, step, decay * memory.matrix, names)
    elif plain(spec):
        matrix = dual
    else:
        matrix = retain(spec, dual, penalty_rate(spec, names), names)
    new = replace(memory, matrix=matrix, dual=dual, momentum=momentum)
    if spec.optimizer.anchor.chunk == 1 or decays_only(spec, names):
        return replace(new, dual=_remirrored(spec, new, names))
    return new


def _reference(spec: Spec, memory: Memory, token: Token, decay: Tensor) -> Tensor:
    if spec.optimizer.anchor.chunk > 1:
        return memory.anchor
    if spec.retention.order == "after":
        return memory.matrix
    if plain(spec) or spec.retention.local.divergence is not None:
        return decay * memory.matrix
    return retain(spec, decay * memory.dual, tensor(0), token.names)
