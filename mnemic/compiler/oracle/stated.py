"""The problem as written, run token by token by automatic differentiation: the second oracle.

It reads the spec, not the derived rule: G_t is autograd's gradient of the summed loss of the
window at W_ref, and the retention is minimised numerically. One head of one sequence at a time;
no phase, bonus, normaliser or slots. Memories with layers, O or norms go through ``stated_deep``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mnemic.compiler.oracle import stated_deep, stated_local
from mnemic.compiler.oracle.stated_network import has_layers, intervals, seeing
from mnemic.compiler.oracle.stated_retention import (
    decays_only,
    diverge,
    dual_of,
    plain,
    resting,
    retain,
)
from mnemic.compiler.oracle.stated_steps import Pair, gradient, past_solution, predict, whole_step
from mnemic.compiler.oracle.stated_tokens import Token, tokens
from mnemic.compiler.oracle.statement import penalty_rate, tensor
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
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, coefficients: Mapping[str, Tensor],
    params: Mapping[str, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """The outputs [B, T, H, d_v]; raises Unstated for what it does not speak.

    ``params`` are the initial duals of a memory with layers, name → [H, rows, columns].
    """
    spec = problem.spec
    if missing := unspoken(spec):
        raise Unstated(missing)
    if has_layers(spec):
        return stated_layers(problem, q, k, v, coefficients, params)[0]
    batch, _, heads = q.shape[:3]

    run = _levelled if "levels" in spec.named_coefficients() else _lane

    def lane(b: int, h: int) -> Tensor:
        sequence = tokens(problem, q, k, v, coefficients, b, h)
        if problem.similarity is not None:
            return stated_local.lane(spec, sequence)
        (dual,) = [x[h] for x in params.values()] if params else [None]
        return run(spec, sequence, dual)

    return torch.stack([torch.stack([lane(b, h) for h in range(heads)], 1) for b in range(batch)])


def stated_layers(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, coefficients: Mapping[str, Tensor],
    params: Mapping[str, Tensor] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
    """The same for a memory with layers, O or norms, and its last state, name → [B, H, …].

    State: ``W1`` and its dual ``A1``, ``S1`` (or the steps gathered since O was last used), the
    last chunk end's ``anchor1``, and so on for every matrix; without numbers for a linear memory.
    Differentiable in every argument, except where the retention is minimised numerically.
    """
    spec = problem.spec
    if missing := unspoken(spec):
        raise Unstated(missing)
    wanted = [q, k, v, *coefficients.values(), *(params or {}).values()]
    followed = any(x.requires_grad for x in wanted)
    if followed and not stated_deep.differentiable(spec):
        raise Unstated("gradients through a retention that is minimised numerically")
    (batch, _, heads, _), found = q.shape, []
    for b in range(batch):
        for h in range(heads):
            sequence = tokens(problem, q, k, v, coefficients, b, h)
            found.append(stated_deep.lane(spec, sequence, _duals(spec, sequence, params, h)))
    out = torch.stack([y for y, _ in found], 1)
    state = {n: _by_head(torch.stack([s[n] for _, s in found]), heads) for n in found[0][1]}
    y = _by_head(out.movedim(0, 1), heads).movedim(1, 2)
    return (y, state) if followed else (y.detach(), {n: x.detach() for n, x in state.items()})


def _by_head(lanes: Tensor, heads: int) -> Tensor:
    """[B·H, …] as [B, H, …]."""
    return lanes.reshape(-1, heads, *lanes.shape[1:])


def _duals(
    spec: Spec, sequence: list[list[Token]], params: Mapping[str, Tensor] | None, head: int
) -> dict[str, Tensor]:
    """A_0 of one head; a linear memory may begin at zero."""
    pair, given, wanted = sequence[0][0].pair, params or {}, intervals(spec)
    if len(wanted) == 1 and not given:
        zero = torch.zeros(len(pair.value), len(pair.write), dtype=torch.float64)
        return dict.fromkeys(wanted, zero)
    found = {name: x[head] for name, x in given.items()}
    if not spec.features.finite:  # what sees the keys starts empty, a column for each pair
        outer = next((x for n, x in found.items() if n == _before(spec)), None)
        rows = len(pair.value) if outer is None else outer.shape[1]
        zero = torch.zeros(rows, len(pair.write), dtype=torch.float64)
        found |= dict.fromkeys(seeing(spec), zero)
    missing = wanted.keys() - found.keys()
    if missing:
        raise ValueError(f"params: missing {', '.join(sorted(missing))}")
    return {name: found[name] for name in wanted}


def _before(spec: Spec) -> str:
    """The matrix that multiplies what the one that sees the keys gives."""
    first = int(seeing(spec)[0].removeprefix("W") or 1)
    return f"W{first - 1}"


def unspoken(spec: Spec) -> str | None:
    """What of the spec this oracle does not speak."""
    optimizer = spec.optimizer
    told = {
        "a whole step behind a kernel": not spec.features.finite
        and optimizer.method in ("implicit", "flow"),
        "rows of weights over their sums": _over_sums(spec),
        "slots": getattr(spec.memory, "slots", None) is not None,
        "a phase": spec.retention.phase is not None,
        "a bonus": spec.readout.bonus is not None,
        "a normaliser": spec.readout.normalizer != "none" or optimizer.rate.normalized,
        "a smooth stand-in": getattr(spec.bias, "smooth", None) is not None,
        "an infinite rate": optimizer.rate.value == float("inf"),
    }
    missing = next((what for what, holds in told.items() if holds), None)
    return stated_deep.unspoken(spec) if missing is None and has_layers(spec) else missing


def _over_sums(spec: Spec) -> bool:
    """Whether a kernel's weights are divided by their sum."""
    entry = spec.features
    read = getattr(entry, "readout", None) or entry
    return "row" in (getattr(entry, "normalise", "none"), getattr(read, "normalise", "none"))


def _lane(spec: Spec, sequence: list[list[Token]], dual: Tensor | None) -> Tensor:
    """The outputs [T, d_v] of one head of one sequence, from a dual of zero unless it is given."""
    first = sequence[0][0]
    memory, rows = _start(spec, first, dual), []
    for t, micro in enumerate(sequence):
        held = {"before": memory.matrix, "anchor": memory.anchor}
        for token in micro:
            memory = learn(spec, memory, token, decays=token is micro[0])
        rows.append(predict(spec, held.get(spec.readout.memory, memory.matrix), micro[0].query))
        if (t + 1) % spec.optimizer.anchor.chunk == 0:
            dual = _remirrored(spec, memory, micro[-1].names)
            memory = replace(memory, anchor=memory.matrix, dual=dual)
    return torch.stack(rows)


def _levelled(spec: Spec, sequence: list[list[Token]], _: Tensor | None) -> Tensor:
    """The same where each token's write is weighed by its level: a memory a token.

    A step is affine in the memory, so a share of it goes on as step(W) − step(0).
    """
    first = sequence[0][0]
    nothing, shares, rows = _start(spec, first), list[Tensor](), []
    for t, (token,) in enumerate(sequence):
        own = learn(spec, nothing, token, decays=True).matrix
        steps = (learn(spec, _from(nothing, w), token, decays=True).matrix for w in shares)
        shares = [*(w - own for w in steps), own]
        weights = token.names["levels"].expand(spec.readout.max_levels)
        seen = [weights[(s ^ t).bit_length()] * w for s, w in enumerate(shares)]
        rows.append(predict(spec, torch.stack(seen).sum(0), token.query))
    return torch.stack(rows)


def _from(nothing: Memory, matrix: Tensor) -> Memory:
    return replace(nothing, matrix=matrix, dual=matrix)


def _start(spec: Spec, token: Token, dual: Tensor | None = None) -> Memory:
    if dual is not None:
        matrix = dual if plain(spec) else retain(spec, dual, tensor(0), token.names)
        return Memory(matrix, dual, torch.zeros_like(dual), matrix)
    write, value = token.pair.write, token.pair.value
    diagonal = type(spec.memory).word() == "diagonal"
    shape = torch.Size([len(value), 1 if diagonal else len(write)])
    zero = torch.zeros(shape, dtype=torch.float64)
    solves = spec.optimizer.method in ("exact", "batch")
    matrix = zero if solves else resting(spec, shape, token.names)
    return Memory(matrix, zero, zero, matrix)


def _remirrored(spec: Spec, memory: Memory, names: Mapping[str, Tensor]) -> Tensor:
    """∇R(W) in the learning-retaining view; the leader keeps its sum."""
    leader = spec.retention.view == "ftrl" or spec.retention.global_.norm is not None
    return memory.dual if leader else dual_of(spec, memory.matrix, names)


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
