"""The problem as written, run token by token by automatic differentiation: the second oracle.

It reads the spec, not the derived rule: G_t is autograd's gradient of the summed loss of the
window at W_ref, and the retention is minimised numerically (``stated_memory``). One head of one
sequence at a time. Memories with layers, O or norms go through ``stated_deep``.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mnemic.compiler.oracle import stated_deep, stated_pairs
from mnemic.compiler.oracle.stated_network import has_layers, intervals, seeing
from mnemic.compiler.oracle.stated_readout import read
from mnemic.compiler.oracle.stated_tokens import Token, tokens
from mnemic.compiler.oracle.statement import loss, tensor
from mnemic.compiler.problem import Problem
from mnemic.dsl.spec import Spec


class Unstated(Exception):
    """Raised for a part of the language that this oracle does not cover."""


def stated(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, coefficients: Mapping[str, Tensor],
    params: Mapping[str, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """Return the outputs [B, T, H, d_v]; raise Unstated for a spec that is not covered.

    ``params`` are the initial duals of a memory with layers, name → [H, rows, columns].
    """
    spec = problem.spec
    if missing := unspoken(spec):
        raise Unstated(missing)
    if has_layers(spec):
        return stated_layers(problem, q, k, v, coefficients, params)[0]
    batch, _, heads = q.shape[:3]

    def lane(b: int, h: int) -> Tensor:
        sequence = tokens(problem, q, k, v, coefficients, b, h)
        if problem.similarity is not None:
            return stated_pairs.lane(spec, sequence)
        (dual,) = [x[h] for x in params.values()] if params else [None]
        return read(spec, sequence, dual)

    return torch.stack([torch.stack([lane(b, h) for h in range(heads)], 1) for b in range(batch)])


def stated_layers(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, coefficients: Mapping[str, Tensor],
    params: Mapping[str, Tensor] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
    """Return the outputs of a memory with layers, O or norms, and its last state by name.

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
    """Reshape [B·H, …] to [B, H, …]."""
    return lanes.reshape(-1, heads, *lanes.shape[1:])


def _duals(
    spec: Spec, sequence: list[list[Token]], params: Mapping[str, Tensor] | None, head: int
) -> dict[str, Tensor]:
    """Return A_0 of one head; a linear memory may begin at zero."""
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
    """Name the matrix that multiplies the output of the matrix that sees the keys."""
    first = int(seeing(spec)[0].removeprefix("W") or 1)
    return f"W{first - 1}"


def unspoken(spec: Spec) -> str | None:
    """Name the first part of a spec that this oracle does not cover; None if it covers all."""
    optimizer = spec.optimizer
    told = {
        "a whole step behind a kernel": not spec.features.finite
        and optimizer.method in ("implicit", "flow"),
        "rows of weights over their sums": _over_sums(spec),
        "a prediction from slots by a key that is none of theirs": _asks_slots(spec),
        "a smooth stand-in": getattr(spec.bias, "smooth", None) is not None,
        "an infinite rate": optimizer.rate.value == float("inf"),
    }
    missing = next((what for what, holds in told.items() if holds), None)
    return stated_deep.unspoken(spec) if missing is None and has_layers(spec) else missing


def _asks_slots(spec: Spec) -> bool:
    """Return whether the memory has slots, predicts with the key itself and needs predictions."""
    if getattr(spec.memory, "slots", None) is None or spec.keys.predict is not None:
        return False
    names = dict.fromkeys((*spec.named_coefficients(), "h", "H", "t"), tensor(0.6))
    point = torch.linspace(-2, 2, 7, dtype=torch.float64).requires_grad_()
    value = loss(spec, point, torch.full_like(point, 0.3), names)
    (slope,) = torch.autograd.grad(value, point)
    return not torch.allclose(slope, slope[0].expand_as(slope))


def _over_sums(spec: Spec) -> bool:
    """Return whether a kernel's weights are divided by their sum."""
    entry = spec.features
    read = getattr(entry, "readout", None) or entry
    return "row" in (getattr(entry, "normalise", "none"), getattr(read, "normalise", "none"))
