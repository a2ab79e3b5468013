"""The derived error signal, slope and step against automatic differentiation of the loss's text."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.oracle import samples
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.minimise import hessian
from mnemic.compiler.oracle.stated_steps import Pair, Query, predict, whole_step
from mnemic.compiler.oracle.statement import coefficient_names, loss, tensor
from mnemic.compiler.problem import HEAD, HEADS, TIME
from mnemic.compiler.rule import Rule

POINTS, SIZE = 48, 5
AT: dict[object, Tensor] = {HEAD: tensor(1), HEADS: tensor(4), TIME: tensor(3)}
"""The head, of so many, and the step at which coefficients are read."""
HUGE = 1e7
"""Stands for an infinite rate, which the minimiser can not take."""


def coefficients(rule: Rule) -> dict[str, Tensor]:
    """Return every coefficient at one place, read from the spec."""
    at = {str(symbol): x for symbol, x in AT.items()}
    return coefficient_names(rule.problem.spec, samples.point(rule), at)


def symbolic(names: dict[str, Tensor]) -> dict[object, Tensor]:
    """Return coefficients by the derivation's symbols, with the head and the step they are at."""
    return {**AT, **{sym.coefficient(name): value for name, value in names.items()}}


def _points(rule: Rule, names: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Draw predictions and values where the loss is a number, near and far from each other."""
    rng = torch.Generator().manual_seed(1)
    shape = (POINTS, SIZE)
    noise, v = (torch.randn(shape, generator=rng, dtype=torch.float64) for _ in range(2))
    y = v + noise * 10 ** torch.linspace(-1, 0.7, POINTS, dtype=torch.float64)[:, None]
    inside = torch.sigmoid(torch.stack([y, v]))
    y, v = torch.cat([y, inside[0]]), torch.cat([v, inside[1]])
    kept = loss(rule.problem.spec, y, v, names).isfinite()
    return y[kept], v[kept]


def _signal(rule: Rule, y: Tensor, v: Tensor, kappa: Tensor, names: dict[str, Tensor]) -> Tensor:
    return evaluate(rule.error.signal, _place(y, v, kappa, names)) + torch.zeros_like(y)


def _place(y: Tensor, v: Tensor, kappa: Tensor, names: dict[str, Tensor]) -> dict[object, Tensor]:
    n = torch.linalg.vector_norm(y - v, dim=-1, keepdim=True)
    return {**symbolic(names), sym.y: y, sym.v: v, sym.n: n, sym.kappa: kappa}


def difference(a: Tensor, b: Tensor) -> float:
    """Return the largest difference, relative for large numbers; NaN counts as infinite."""
    a, b = a.detach(), b.detach()
    apart = ((a - b).abs() / (1 + b.abs())).nan_to_num(torch.inf, torch.inf, torch.inf)
    return float(apart.max()) if apart.numel() else float("inf")


def error_signal(rule: Rule) -> float:
    """Compare e with autograd's ∂ℓ/∂ŷ (over 1 + ηκℓ″ where the rate is normalised)."""
    spec, names, kappa = rule.problem.spec, coefficients(rule), tensor(0.7)
    y, v = _points(rule, names)
    y = y.requires_grad_()
    (stated,) = torch.autograd.grad(loss(spec, y, v, names).sum(), y)
    if spec.optimizer.rate.normalized:
        rate = names["eta"] * (names["gamma"] if rule.problem.even_weight is not None else 1)
        stated = stated / (1 + rate * kappa * _curvature(rule, y.detach(), v, names))
    return difference(_signal(rule, y.detach(), v, kappa, names), stated)


def _curvature(rule: Rule, y: Tensor, v: Tensor, names: dict[str, Tensor]) -> Tensor:
    """Return ℓ″ of each coordinate, or the largest over all directions of a radial loss."""
    found = []
    for here, value in zip(y, v, strict=True):
        curve = hessian(partial(_loss_at, rule, value, names), here)
        radial = not rule.problem.loss.has(sym.e, sym.y, sym.v)
        whole = torch.linalg.eigvalsh(curve).max() + 0 * here
        found.append(whole if radial else curve.diagonal().abs())
    return torch.stack(found)


def _loss_at(rule: Rule, value: Tensor, names: dict[str, Tensor], y: Tensor) -> Tensor:
    return loss(rule.problem.spec, y, value, names)


def smoothed_signal(rule: Rule) -> float:
    """Compare a smooth stand-in with the gradient as written, far away, where they agree."""
    spec, names, steep = rule.problem.spec, coefficients(rule), spec_smooth(rule)
    y, v = _points(rule, names)
    far = torch.where(y >= v, 1.0, -1.0) * (y - v).abs().clamp_min(20 / steep)
    y = (v + far).requires_grad_()
    (stated,) = torch.autograd.grad(loss(spec, y, v, names).sum(), y)
    return difference(_signal(rule, y.detach(), v, tensor(0.7), names), stated) * steep**2


def spec_smooth(rule: Rule) -> float:
    """Return the steepness of the stand-ins, 0 where there are none."""
    return float(getattr(rule.problem.spec.bias, "smooth", None) or 0)


def slope(rule: Rule) -> float:
    """Compare slope·I + radial·rrᵀ with the Jacobian of the signal."""
    names, kappa = coefficients(rule), tensor(0.7)
    y, v = _points(rule, names)
    worst = 0.0
    for here, value in zip(y[::4], v[::4], strict=True):
        jacobian = _jacobian(partial(_signal, rule, v=value, kappa=kappa, names=names), here)
        place = _place(here, value, kappa, names)
        along = evaluate(rule.error.slope, place) + torch.zeros_like(here)
        radial = evaluate(rule.error.radial, place)
        residual = here - value
        found = torch.diag(along) + radial * torch.outer(residual, residual)
        worst = max(worst, difference(found, jacobian))
    return worst


def _jacobian(function: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    at = point.detach().requires_grad_()
    value = function(at) + 0 * at
    return torch.stack([torch.autograd.grad(x, at, retain_graph=True)[0] for x in value])


def step(rule: Rule) -> float:
    """Compare −η e φᵀ with the minimiser of δℓ(Wφ) + ½‖W − W'‖², or the integrated flow."""
    spec, names = rule.problem.spec, coefficients(rule)
    if spec.optimizer.rate.value == float("inf"):
        names = {**names, spec.rate_name: tensor(HUGE)}
    rng, worst = torch.Generator().manual_seed(2), 0.0
    rows, columns = (4, 1) if rule.diagonal else (3, 4)
    for _ in range(3):
        key, value = (torch.randn(d, generator=rng, dtype=torch.float64) for d in (4, rows))
        memory = torch.randn(rows, columns, generator=rng, dtype=torch.float64)
        gamma = names["gamma"] if rule.problem.even_weight is not None else tensor(1)
        pair = Pair(Query(key, key), key, key, value, gamma, True)
        stated = whole_step(spec, memory, pair, names)
        square = key**2 if rule.diagonal else (key**2).sum()
        signal = _signal(rule, predict(spec, memory, pair.predict), value, square, names)
        rate = evaluate(rule.rate, symbolic(names))
        moved = (signal * key)[:, None] if rule.diagonal else torch.outer(signal, key)
        worst = max(worst, difference(-rate * moved, stated))
    return worst
