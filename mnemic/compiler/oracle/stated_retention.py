"""The retention step solved numerically, from the objective as the spec writes it."""

from collections.abc import Mapping
from itertools import product

import torch
from torch import Tensor

from mnemic.compiler.oracle.minimise import (
    AXES,
    Entries,
    domain_of,
    in_ball,
    newton,
    on_simplex,
    separable,
)
from mnemic.compiler.oracle.statement import (
    coefficient_names,
    evaluate_text,
    function_text,
    tensor,
)
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.retention import Ball, Simplex
from mnemic.dsl.spec import Spec

Names = Mapping[str, Tensor]


def retain(spec: Spec, pull: Tensor, rate: Tensor, names: Names) -> Tensor:
    """Return argmin over W [..., d_v, D] of R(W) + weight·P(W) − ⟨pull, W⟩ under the constraint.

    That is η⟨G, W⟩ + D_R(W, W') + η P(W) with pull = ∇R(W') − ηG and the rate η for the weight
    (learning-retaining), or the leader's −⟨A, W⟩ + R(W) + P(W) with pull = A and 1. A link that
    the spec states is evaluated as written.
    """
    entry = spec.retention
    if entry.link is not None:
        size = torch.linalg.vector_norm(pull, entry.link.power, (-2, -1), keepdim=True)
        point = {**names, "a": pull, "nu": size.clamp_min(1e-30)}
        return evaluate_text(entry.link.expr, point) + torch.zeros_like(pull)
    if entry.global_.norm is not None:
        return _squared_norm(pull, entry.global_.norm)
    whole = keep(spec, rate, names)
    domain = domain_of(keep(spec, tensor(1), names))
    return _solve(spec, lambda w: whole(w) - pull * w, pull.shape, domain, names)


def keep(spec: Spec, rate: Tensor, names: Names) -> Entries:
    """Return R(W) + weight·P(W) by entry: the weight is the rate, and 1 for the leader."""
    generator = function_text(_generator(spec), "w", names)
    penalty = function_text(spec.retention.global_.text, "w", names)
    weight = tensor(1) if spec.retention.view == "ftrl" else rate
    return lambda w: generator(w) + weight * penalty(w)


def pull_of(spec: Spec, memory: Tensor, names: Names) -> Tensor:
    """Return the dual that a memory comes from: ∇R(W), the leader's ∇(R + P)(W)."""
    return slope_at(keep(spec, tensor(0), names), memory)


def slope_at(function: Entries, at: Tensor) -> Tensor:
    """Return the derivative of a function by entry."""
    point = at.detach().requires_grad_()
    value = (function(point) + 0 * point).sum()
    return torch.autograd.grad(value, point)[0]


def plain(spec: Spec) -> bool:
    """Return whether the retention is ½‖W − W'‖² and nothing else."""
    entry = spec.retention
    if entry.link is not None:
        return False
    kinds = (type(entry.local).word(), type(entry.global_).word(), type(entry.constraint).word())
    return kinds == ("l2", "none", "none")


def decays_only(spec: Spec, names: Names) -> bool:
    """Return whether ∇R(W) is linear in the dual that W comes from (up to a constant on a simplex).

    Then the retention is a decay, which acts at every token, whatever the anchor. This is tested
    in numbers, once per spec, with coefficients and a rate that are not zero if they can be.
    """
    if spec.retention.view == "ftrl" or spec.retention.link is not None or plain(spec):
        return True
    if spec.retention.local.divergence is not None:
        return False
    key = spec_hash(spec)
    if key not in _tried:
        _tried[key] = _is_linear(spec, _anywhere(spec, names))
    return _tried[key]


_tried: dict[str, bool] = {}
"""Whether the retention of a spec is a decay alone, by the spec."""


TOKENS, HEADS, TIMES = (0, 1, 2, 5, 40), 3, (1, -1, 100)
"""Where coefficients are looked at, and of how many times the given ones: some are zero at one
token, head or size and not at another."""


def _anywhere(spec: Spec, names: Names) -> dict[str, Tensor]:
    """Return coefficients, each at a token, head and input where it is not zero, if any."""
    sizes = {n: torch.where(x == 0, 0.3, x.detach().abs()) for n, x in names.items()}
    found: dict[str, Tensor] = {}
    for token, head, times in product(TOKENS, range(HEADS), TIMES):
        point = {"h": tensor(head), "H": tensor(HEADS), "t": tensor(token)}
        here = coefficient_names(spec, {n: times * x for n, x in sizes.items()}, point)
        for name, x in here.items():
            known = found.get(name, x)
            better = x.isfinite() & ((known == 0) | ~known.isfinite())
            found[name] = torch.where(better, x, known)
    return found


def _is_linear(spec: Spec, names: Names) -> bool:
    rng = torch.Generator().manual_seed(6)
    one, other = torch.randn(2, 2, 3, generator=rng, dtype=torch.float64)
    duals = torch.stack([one + other, one, other, 0 * one])
    back = dual_of(spec, retain(spec, duals, tensor(1), names), names)
    defect = back[0] - back[1] - back[2] + back[3]
    constant, limits = back[3], spec.retention.constraint
    if isinstance(limits, Simplex):
        defect, constant = (x - x.mean(AXES[limits.over], keepdim=True) for x in (defect, constant))
    return bool(max(defect.abs().max(), constant.abs().max()) < 1e-6)


def diverge(spec: Spec, pull: Tensor, previous: Tensor, names: Names) -> Tensor:
    """Return argmin over W of Σ w' f(w/w') − ⟨pull, W⟩ under the constraint."""
    text = spec.retention.local.divergence
    assert text is not None

    def objective(w: Tensor) -> Tensor:
        return previous * evaluate_text(text, {**names, "x": w / previous}) - pull * w

    return _solve(spec, objective, pull.shape, (0.0, torch.inf), names)


def resting(spec: Spec, shape: torch.Size, names: Names) -> Tensor:
    """Return the memory at a dual of zero; under an f-divergence, a uniform one."""
    zero = torch.zeros(shape, dtype=torch.float64)
    if spec.retention.local.divergence is None:
        return retain(spec, zero, tensor(0), names)
    limits = spec.retention.constraint
    if not isinstance(limits, Simplex):
        return zero + 1
    rows, columns = shape[-2:]
    count = {"all": rows * columns, "rows": columns, "columns": rows}[limits.over]
    return zero + names["scale"] / count


def dual_of(spec: Spec, memory: Tensor, names: Names) -> Tensor:
    """Return ∇R(W), R the local generator."""
    if spec.retention.local.divergence is not None or spec.retention.global_.norm is not None:
        return memory
    return slope_at(function_text(_generator(spec), "w", names), memory)


def _generator(spec: Spec) -> str:
    text = spec.retention.local.generator
    assert text is not None
    return text


def _solve(
    spec: Spec, objective: Entries, shape: torch.Size, domain: tuple[float, float], names: Names
) -> Tensor:
    match spec.retention.constraint:
        case Simplex(over=over):
            return on_simplex(objective, shape, domain, over, names["scale"])
        case Ball():
            return in_ball(objective, shape, domain, names["radius"])
    return separable(objective, shape, domain)


def _squared_norm(dual: Tensor, power: float) -> Tensor:
    """Solve argmin −⟨A, W⟩ + ½‖W‖_q², each matrix by itself."""
    matrices = dual.reshape(-1, *dual.shape[-2:])
    return torch.stack([_one_norm(a, power) for a in matrices]).reshape(dual.shape)


def _one_norm(dual: Tensor, power: float) -> Tensor:
    if float(dual.abs().max()) == 0:
        return torch.zeros_like(dual)

    def objective(w: Tensor) -> Tensor:
        return (w.abs() ** power).sum() ** (2 / power) / 2 - (dual * w).sum()

    return newton(objective, dual)
