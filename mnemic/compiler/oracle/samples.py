"""Random arguments for a rule, each coefficient inside the range of its activation."""

from dataclasses import dataclass
from typing import Final

import sympy as sp
import torch
from torch import Tensor

from mnemic.compiler.network import ONE
from mnemic.compiler.oracle.reference_features import feature_map
from mnemic.compiler.oracle.statement import activation
from mnemic.compiler.problem import Scalar
from mnemic.compiler.rule import Rule

DEFAULTS: Final = {
    "alpha": "sigmoid(x + 2)",
    "beta": "sigmoid(x + 2)",
    "eta": "sigmoid(x - 1)",
    "phase": "x",
    "bonus": "x",
    "scale": "1 + softplus(x)",
    "radius": "softplus(x)",
}
"""Activations where a spec names none; a sigmoid elsewhere."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a sample."""

    batch: int = 2
    length: int = 7
    heads: int = 2
    key: int = 3
    value: int = 3


@dataclass(frozen=True)
class Sample:
    """q, k, v, the operator's coefficients and the initial duals of a memory with layers."""

    q: Tensor
    k: Tensor
    v: Tensor
    coefficients: dict[str, Tensor]
    params: dict[str, Tensor]


def draw(rule: Rule, sizes: Sizes = Sizes(), seed: int = 0) -> Sample:
    """Draw unit keys, Gaussian queries and values, and coefficients in their ranges."""
    rng = torch.Generator().manual_seed(seed)
    spec = rule.problem.spec
    micro = spec.optimizer.micro_steps
    lead = (sizes.batch, sizes.length, sizes.heads)
    steps = (*lead[:2], micro, lead[2]) if micro > 1 else lead

    def gaussian(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    width = feature_size(rule, sizes.key)
    found: dict[str, Tensor] = {}
    for scalar in rule.scalars:
        if scalar.argument is not None:
            raw = gaussian(*_shape(rule, scalar, lead, steps, width, sizes.value))
            natural = activation(scalar.declared, DEFAULTS.get(scalar.name, "sigmoid"))(raw)
            if scalar.declared.origin == "parameter":  # the same for every sequence and token
                natural = natural[:1, :1].expand(natural.shape).clone()
            found[scalar.argument] = natural.log() if scalar.logarithmic else natural
    for role in ("predict", "erase", "write", "carry"):
        if rule.problem.keys.get(role) == sp.Symbol(role, real=True):
            found[role] = _unit(gaussian(*steps, sizes.key))
    q, k = gaussian(*lead, sizes.key), _unit(gaussian(*steps, sizes.key))
    parts = 2 if rule.diagonal and rule.phase else 1
    v = gaussian(*steps, parts * sizes.key if parts > 1 else sizes.value)
    params = {
        name: gaussian(sizes.heads, rows, columns) / columns**0.5
        for name, rows, columns in _matrices(rule, sizes.value, width)
    }
    return Sample(q, k, v, found, params)


def _matrices(rule: Rule, rows: int, columns: int) -> list[tuple[str, int, int]]:
    """Return names and sizes of the matrices that start at parameters, hidden widths four."""
    known = {"v": rows, "D": columns, ONE: 1}
    return [(m.name, known.get(m.rows, 4), known.get(m.columns, 4)) for m in rule.parameters]


def feature_size(rule: Rule, size: int) -> int:
    """Return D, the number of features (of slots, where the memory has them)."""
    slots = getattr(rule.problem.spec.memory, "slots", None)
    if slots is not None:
        return int(slots)
    if rule.kernels is not None:
        return size
    one = torch.ones(1, size, dtype=torch.float64)
    weights = [one[0, 0] for _ in rule.problem.spec.features.coefficients()]
    return int(feature_map(rule.problem, one, torch.zeros(1), weights).shape[-1])


def _shape(
    rule: Rule, scalar: Scalar, lead: tuple[int, ...], steps: tuple[int, ...],
    width: int, rows: int,
) -> tuple[int, ...]:  # fmt: skip
    shape = steps if scalar.name in ("eta", "delta") else lead
    if scalar.name == "gamma" and rule.gamma == "window":
        return (*shape, rule.window)
    if scalar.name == "levels":
        return (*shape, rule.problem.spec.readout.max_levels)
    if scalar.per == "value":
        return (*shape, rows)
    return (*shape, width) if scalar.per in ("key", "outer") else shape


def _unit(x: Tensor) -> Tensor:
    unit: Tensor = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return unit


def point(rule: Rule, seed: int = 0) -> dict[str, Tensor]:
    """Return one value of every argument by the coefficient's name, not as a logarithm."""
    rng = torch.Generator().manual_seed(seed)
    raw = torch.randn(len(rule.scalars), generator=rng, dtype=torch.float64)
    return {
        s.name: activation(s.declared, DEFAULTS.get(s.name, "sigmoid"))(x)
        for s, x in zip(rule.scalars, raw, strict=True)
        if s.argument is not None
    }
