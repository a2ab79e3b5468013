"""Fits over kept pairs for the interpreter: every token gathers what it sees and solves anew.

Weights are evaluated as stated (not their logarithms), the local linear fit by its normal equations
in [1, k − q] (not centred), the interpolation by the whole kernel matrix of every prefix.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from mnemic.compiler import symbols as sym
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret_inputs import Inputs
from mnemic.compiler.rule import Fit, KeyValuePairs

Values = dict[Any, Tensor]


@dataclass
class _Pairs:
    """What one sequence has kept: each a tensor of [H, n, …]."""

    keys: Tensor
    values: Tensor
    decays: Tensor
    """what decays left of each pair's weight, [H, n]"""
    position: int = 0
    outputs: list[Tensor] = field(default_factory=list)

    def move(self, carry: Tensor, rate: Tensor) -> None:
        """Move every kept key by k̃ ← (I − η c cᵀ) k̃; c [H, D], η [H, 1]."""
        eye = torch.eye(carry.shape[-1], dtype=torch.float64)
        step = eye - rate[..., None] * carry[:, :, None] * carry[:, None, :]
        self.keys = self.keys @ step.mT

    def add(self, key: Tensor, value: Tensor, decay: Tensor, most: int | None) -> None:
        """Append one more pair, keeping the last ``most``."""
        first = max(0, self.keys.shape[1] + 1 - most) if most else 0
        fresh = torch.ones_like(value[:, :1])
        self.keys = torch.cat([self.keys, key[:, None]], 1)[:, first:]
        self.values = torch.cat([self.values, value[:, None]], 1)[:, first:]
        self.decays = torch.cat([self.decays * decay, fresh], 1)[:, first:]
        self.position += 1


def run(
    rule: KeyValuePairs, inputs: Inputs, start: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the outputs [B, T, H, d_v] and the last state, by the operator's names."""
    rows = [_sequence(rule, inputs, start, b) for b in range(inputs.mask.shape[0])]
    y = torch.stack([torch.stack(row.outputs) for row in rows])
    return y, _named(rule, rows)


def _sequence(rule: KeyValuePairs, inputs: Inputs, start: Mapping[str, Tensor], b: int) -> _Pairs:
    keyed, fit = inputs.keyed, rule.fit
    pairs = _first(rule, inputs, start, b)
    most = rule.window if rule.window > 1 else None
    for t in range(inputs.mask.shape[1]):
        at = {s: x[min(b, x.shape[0] - 1)][..., 0] for s, x in inputs.at(t, 0).items()}
        if bool(inputs.mask[b, t]):
            key, value = keyed.write[b, t, 0][:, 0, :], keyed.value[b, t, 0][..., 0]
            if keyed.carry is not None:
                carry = keyed.carry[b, t, 0][:, 0, :]
                rate = evaluate(rule.rate, at)
                pairs.move(carry, rate.expand(key.shape[0], 1))
            decay = evaluate(rule.decay, at).expand(key.shape[0], 1)
            pairs.add(key, value, decay, most)
        asked = [_read(fit, pairs, x[b, t, 0][:, 0, :], at) for x in keyed.queries]
        pairs.outputs.append(torch.stack(asked, 1).flatten(0, 1))
    return pairs


def _first(rule: KeyValuePairs, inputs: Inputs, start: Mapping[str, Tensor], b: int) -> _Pairs:
    heads, width = inputs.keyed.write.shape[3], inputs.keyed.write.shape[-1]
    empty = torch.zeros(heads, 0, dtype=torch.float64)
    blank = (empty[..., None].expand(heads, 0, width), empty[..., None].expand(heads, 0, width))
    position = int(start["position"][b]) if "position" in start else 0
    count = min(position, rule.window - 1) if rule.window > 1 else position
    values = empty[..., None].expand(heads, 0, inputs.keyed.value.shape[-2])
    if "keys" not in start:
        return _Pairs(blank[0], values, empty, position)
    kept = start["keys"][b, :, :count]
    if "values" in start:
        values = start["values"][b, :, :count]
    else:
        factor = start["factor"][b, :, :count, :count]
        values = factor @ start["solved"][b, :, :count]
    decays = torch.ones_like(kept[..., 0])
    if "log_kept" in start:
        decays = torch.exp(start["log_kept"][b, :, :count])
    return _Pairs(kept, values, decays, position)


def _read(fit: Fit, pairs: _Pairs, query: Tensor, at: Values) -> Tensor:
    """Return the fit's value at one query a head: [H, D] → [H, d_v]."""
    if pairs.keys.shape[1] == 0:
        return torch.zeros_like(pairs.values.sum(1))
    weights = _weights(fit, query[:, None], pairs.keys, at)[:, 0]
    if fit.kind == "interpolation":
        return _interpolated(fit, pairs, weights, at)
    weights = weights * pairs.decays
    if fit.kind == "mean":
        total = weights.sum(1, keepdim=True)
        whole = (weights[..., None] * pairs.values).sum(1)
        return torch.where(total == 0, 0.0, whole / torch.where(total == 0, 1.0, total))
    return _linear(pairs, weights, query, evaluate(fit.ridge, at))


def _weights(fit: Fit, queries: Tensor, keys: Tensor, at: Values) -> Tensor:
    """Evaluate w(k_i, q_j) as stated: [H, m, D], [H, n, D] → [H, m, n]."""
    apart = keys[:, None] - queries[:, :, None]
    place = {
        **{s: x[..., None] if x.ndim else x for s, x in at.items()},
        sym.kq: (keys[:, None] * queries[:, :, None]).sum(-1),
        sym.kk: (keys**2).sum(-1)[:, None],
        sym.qq: (queries**2).sum(-1)[..., None],
        sym.d_k: torch.tensor(float(keys.shape[-1]), dtype=torch.float64),
    }
    found: Tensor = evaluate(fit.similarity.weight, place)
    return found + 0 * apart.sum(-1)


def _linear(pairs: _Pairs, weights: Tensor, query: Tensor, ridge: Tensor) -> Tensor:
    """Solve the normal equations of [1, k − q] and return the intercept."""
    most = weights.amax(1, keepdim=True)
    weights = torch.where(most == 0, 0.0, weights / torch.where(most == 0, 1.0, most))
    apart = pairs.keys - query[:, None]
    design = torch.cat([torch.ones_like(apart[..., :1]), apart], -1)
    weighed = weights[..., None] * design
    slope = torch.ones(design.shape[-1], dtype=torch.float64)
    slope[0] = 0
    system = design.mT @ weighed + torch.diag(slope) * ridge.reshape(-1, 1, 1)
    found: Tensor = torch.linalg.solve(system, weighed.mT @ pairs.values)
    return found[:, 0]


def _interpolated(fit: Fit, pairs: _Pairs, weights: Tensor, at: Values) -> Tensor:
    whole = torch.linalg.solve(_kernel(fit, pairs.keys, at), pairs.values)
    found: Tensor = (weights[..., None] * whole).sum(1)
    return found


def _kernel(fit: Fit, keys: Tensor, at: Values) -> Tensor:
    """Compute κ(K, K) + ridge·I."""
    eye = torch.eye(keys.shape[1], dtype=torch.float64)
    return _weights(fit, keys, keys, at) + float(fit.ridge) * eye


def _named(rule: KeyValuePairs, rows: list[_Pairs]) -> dict[str, Tensor]:
    fit = rule.fit
    most = rule.window - 1 if rule.window > 1 else None
    kept = [row.keys[:, max(0, row.keys.shape[1] - most) :] if most else row.keys for row in rows]
    sizes = [x.shape[1] for x in kept]
    found = {"keys": _padded(kept, sizes)}
    if fit.kind == "interpolation":
        factors = [torch.linalg.cholesky(_kernel(fit, row.keys, {})) for row in rows]
        solved = [
            torch.linalg.solve_triangular(factor, row.values, upper=False)
            for factor, row in zip(factors, rows, strict=True)
        ]
        wide = [pad(x, (0, max(sizes) - x.shape[-1])) for x in factors]
        return found | {"factor": _padded(wide, sizes), "solved": _padded(solved, sizes)}
    found["values"] = _padded(
        [row.values[:, -size:] if size else row.values[:, :0] for row, size in _with(rows, sizes)],
        sizes,
    )
    if rule.decay != 1:
        logs = [
            row.decays[:, row.decays.shape[1] - size :].log() for row, size in _with(rows, sizes)
        ]
        found["log_kept"] = _padded(logs, sizes)
    return found


def _with(rows: list[_Pairs], sizes: list[int]) -> list[tuple[_Pairs, int]]:
    return list(zip(rows, sizes, strict=True))


def _padded(parts: list[Tensor], sizes: list[int]) -> Tensor:
    """Pad [H, n, …] of every row to the longest and stack them as [B, H, n, …]."""
    grown = [
        pad(x, (*[0] * (2 * (x.ndim - 2)), 0, max(sizes) - size))
        for x, size in zip(parts, sizes, strict=True)
    ]
    return torch.stack(grown)
