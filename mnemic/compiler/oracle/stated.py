"""The problem as written, run token by token by automatic differentiation: the second oracle.

It reads the spec, not the derived rule: G_t is autograd's gradient of the summed loss of the
window at W_ref, and the retention is minimised numerically. One head of one sequence at a time;
no phase, bonus, normaliser or slots, and no deep memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mnemic.compiler.oracle.stated_retention import diverge, dual_of, resting, retain
from mnemic.compiler.oracle.stated_steps import Pair, gradient, past_solution, predict, whole_step
from mnemic.compiler.oracle.stated_tokens import Token, tokens
from mnemic.compiler.oracle.statement import tensor
from mnemic.compiler.problem import Problem
from mnemic.dsl.spec import Spec


class Unstated(Exception):
    """A part of the language that this oracle does not speak."""


@dataclass(frozen=True)
class Memory:
    """What is carried along: W, its dual, the momentum, W at the last chunk end, the past."""

    matrix: Tensor
    dual: Tensor
    momentum: Tensor
    anchor: Tensor
    past: tuple[Pair, ...] = ()


def stated(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, coefficients: Mapping[str, Tensor]
) -> Tensor:
    """The outputs [B, T, H, d_v]; raises Unstated for what it does not speak."""
    spec = problem.spec
    if missing := unspoken(spec):
        raise Unstated(missing)
    batch, _, heads = q.shape[:3]

    def lane(b: int, h: int) -> Tensor:
        return _lane(spec, tokens(problem, q, k, v, coefficients, b, h))

    return torch.stack([torch.stack([lane(b, h) for h in range(heads)], 1) for b in range(batch)])


def unspoken(spec: Spec) -> str | None:
    """What of the spec this oracle does not speak."""
    memory, optimizer = type(spec.memory).word(), spec.optimizer
    told = {
        f"a memory of the kind '{memory}'": memory not in ("linear", "diagonal")
        and getattr(spec.memory, "depth", 2) != 1,
        "a kernel without a finite map": not spec.features.finite,
        "slots": getattr(spec.memory, "slots", None) is not None,
        "a phase": spec.retention.phase is not None,
        "a bonus": spec.readout.bonus is not None,
        "a normaliser": spec.readout.normalizer != "none" or optimizer.rate.normalized,
        "a smooth stand-in": getattr(spec.bias, "smooth", None) is not None,
        "an infinite rate": optimizer.rate.value == float("inf"),
        f"the method '{optimizer.method}'": optimizer.method in ("muon", "adam", "nonparametric"),
        "a renormalised memory": spec.retention.normalize != "none",
    }
    return next((what for what, holds in told.items() if holds), None)


def _lane(spec: Spec, sequence: list[list[Token]]) -> Tensor:
    """The outputs [T, d_v] of one head of one sequence."""
    first = sequence[0][0]
    memory, rows = _start(spec, first), []
    for t, micro in enumerate(sequence):
        held = {"before": memory.matrix, "anchor": memory.anchor}
        for token in micro:
            memory = learn(spec, memory, token, decays=token is micro[0])
        rows.append(predict(spec, held.get(spec.readout.memory, memory.matrix), micro[0].query))
        if (t + 1) % spec.optimizer.anchor.chunk == 0:
            memory = replace(memory, anchor=memory.matrix, dual=_remirrored(spec, memory))
    return torch.stack(rows)


def _start(spec: Spec, token: Token) -> Memory:
    write, value = token.pair.write, token.pair.value
    diagonal = type(spec.memory).word() == "diagonal"
    shape = torch.Size([len(value), 1 if diagonal else len(write)])
    zero = torch.zeros(shape, dtype=torch.float64)
    solves = spec.optimizer.method in ("exact", "batch")
    matrix = zero if solves else resting(spec, shape, token.names)
    return Memory(matrix, zero, zero, matrix)


def _remirrored(spec: Spec, memory: Memory) -> Tensor:
    """∇R(W) in the learning-retaining view; the leader keeps its sum."""
    leader = spec.retention.view == "ftrl" or spec.retention.global_.norm is not None
    return memory.dual if leader else dual_of(spec, memory.matrix)


def learn(spec: Spec, memory: Memory, token: Token, *, decays: bool) -> Memory:
    """One token, or one micro-step of it, with all its inner steps."""
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
        step = -rate * whole
        if theta is not None:
            on_write = theta.on == "write"
            momentum = names["theta"] * momentum - rate * (write if on_write else whole)
            step = momentum - rate * (whole - write) if on_write else momentum
    dual = decay * memory.dual + step
    if spec.retention.local.divergence is not None:
        matrix = diverge(spec, step, decay * memory.matrix, names)
    elif _plain(spec):
        matrix = dual
    else:
        matrix = retain(spec, dual, names.get("eta", one), names)
    new = replace(memory, matrix=matrix, dual=dual, momentum=momentum)
    token_anchor = spec.optimizer.anchor.chunk == 1
    return replace(new, dual=_remirrored(spec, new)) if token_anchor else new


def _reference(spec: Spec, memory: Memory, token: Token, decay: Tensor) -> Tensor:
    if spec.optimizer.anchor.chunk > 1:
        return memory.anchor
    if spec.retention.order == "after":
        return memory.matrix
    if _plain(spec) or spec.retention.local.divergence is not None:
        return decay * memory.matrix
    return retain(spec, decay * memory.dual, tensor(0), token.names)


def _plain(spec: Spec) -> bool:
    """Whether the retention is ½‖W − W'‖² and nothing else."""
    entry = spec.retention
    if entry.link is not None:
        return False
    kinds = (type(entry.local).word(), type(entry.global_).word(), type(entry.constraint).word())
    return kinds == ("l2", "none", "none")
