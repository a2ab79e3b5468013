"""Exact and full-batch solutions, from the normal equations: H = Σ γ φ φᵀ, U = Σ γ v φᵀ."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret_inputs import Inputs
from mnemic.compiler.oracle.interpret_state import chosen
from mnemic.compiler.rule import LeastSquares, Moments


def run(
    rule: Moments, inputs: Inputs, start: Mapping[str, Tensor]
) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
    """Return the memory that every token's query reads, by its matrix's name, and the last moments.

    ``ridge`` in the state is the product of the decays so far, which forgets the ridge.
    """
    key, value, moments = inputs.keyed.predict, inputs.keyed.value, rule.solution
    batch, heads, size = key.shape[0], key.shape[3], key.shape[-1]
    rows = key.shape[-2] if rule.diagonal else size
    zeros = torch.zeros(batch, heads, 1, 1, dtype=torch.float64)
    state = (
        start.get("H", zeros.expand(batch, heads, rows, size)),
        start.get("U", zeros.expand(batch, heads, value.shape[-2], size)),
        start.get("ridge", zeros + 1),
    )
    (matrix,) = rule.network.matrices
    memories, before = [], rule.problem.spec.readout.memory == "before"
    for t in range(key.shape[1]):
        values, x, v = inputs.at(t, 0), key[:, t, 0], value[:, t, 0]
        forget, weight = _weights(moments, values)
        second, cross, prior = state
        if before:
            memories.append({matrix.name: _solution(rule, state, values)})
        new = (
            forget * second + weight * (x * x if rule.diagonal else x.transpose(-1, -2) @ x),
            forget * cross + weight * v * x,
            prior if moments.constant else forget * prior,
        )
        state = tuple(chosen(inputs.mask[:, t], a, b) for a, b in zip(new, state, strict=True))
        if not before:
            memories.append({matrix.name: _solution(rule, state, values)})
    return memories, dict(zip(("H", "U", "ridge"), state, strict=True))


def _weights(moments: LeastSquares, values: dict[Any, Tensor]) -> tuple[Tensor, Tensor]:
    """Return how much the past is kept, and how much the new token weighs."""
    one = torch.ones((), dtype=torch.float64)
    kept = values[sym.coefficient("gamma")] if moments.fades else one
    return kept, evaluate(moments.weight, values)


def _solution(
    rule: Moments, state: tuple[Tensor, Tensor, Tensor], values: dict[Any, Tensor]
) -> Tensor:
    """Solve argmin Σ γ ½‖Wφ − v‖² + ½λ‖W‖², or take a few full-batch steps from the origin."""
    (second, cross, prior), moments = state, rule.solution
    ridge = evaluate(moments.ridge, values) * prior
    if rule.diagonal:  # every channel is a regression of its own
        return _channels(rule, second + ridge, cross, values)
    whole = second + ridge * torch.eye(second.shape[-1], dtype=torch.float64)
    if moments.steps == 0:
        exact: Tensor = torch.linalg.solve(whole, cross.transpose(-1, -2))
        return exact.transpose(-1, -2)
    rate = evaluate(rule.rate, values)
    memory = torch.zeros_like(cross)
    for _ in range(moments.steps):
        memory = memory - rate * (memory @ whole - cross)
    return memory


def _channels(rule: Moments, whole: Tensor, cross: Tensor, values: dict[Any, Tensor]) -> Tensor:
    """Solve for a memory of one number a channel, as H and U are; or step from the origin."""
    moments = rule.solution
    if moments.steps == 0:
        return cross / whole
    rate, memory = evaluate(rule.rate, values), torch.zeros_like(cross)
    for _ in range(moments.steps):
        memory = memory - rate * (memory * whole - cross)
    return memory
