"""Steps on the loss as written: gradients by autograd, implicit steps minimised, flows followed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemic.compiler.oracle.minimise import Entries, newton, separable
from mnemic.compiler.oracle.stated_retention import keep, pull_of, slope_at
from mnemic.compiler.oracle.statement import evaluate_text, is_radial, loss, penalty_rate, tensor
from mnemic.dsl.spec import Spec

Names = Mapping[str, Tensor]
EPSILON = 1e-5
STILL = 1e-9
"""The slope that a smooth objective may have left at its minimum."""
QUICK = 30
"""Newton steps for an objective that is smooth."""
PIECES = 120
"""Runge-Kutta steps of a gradient flow."""


@dataclass(frozen=True)
class Query:
    """φ of a key or query, and the vector itself."""

    mapped: Tensor
    raw: Tensor


@dataclass(frozen=True)
class Pair:
    """One key and value: the vectors of each role, the weight γ, and its own under a solver."""

    predict: Query
    erase: Tensor
    write: Tensor
    value: Tensor
    gamma: Tensor
    plain: bool
    weight: Tensor = tensor(1)


def predict(spec: Spec, memory: Tensor, query: Query) -> Tensor:
    """Return M(W, x): a linear or diagonal memory, with LayerNorm and residual where the spec has
    them."""
    if type(spec.memory).word() == "diagonal":
        y = memory[:, 0] * query.mapped
    else:
        y = memory @ query.mapped
    if getattr(spec.memory, "norm", False):
        y = torch.nn.functional.layer_norm(y, y.shape[-1:], eps=EPSILON)
    return y + query.raw if getattr(spec.memory, "residual", False) else y


def gradient(
    spec: Spec, memory: Tensor, past: tuple[Pair, ...], names: Names
) -> tuple[Tensor, Tensor]:
    """Return ∇_W Σ γ_i ℓ(M(W, φ(k_i)), v_i), and the part of it that is there at ŷ = 0."""
    weights = window_weights(spec, past, names)
    point = memory.detach().requires_grad_()
    whole, write = torch.zeros_like(memory), torch.zeros_like(memory)
    for pair, gamma in zip(past, weights, strict=True):
        y = predict(spec, point, pair.predict)
        at_zero = gamma * _outer(spec, _error(spec, torch.zeros_like(y), pair, names), pair.write)
        write = write + at_zero
        if pair.plain:
            value = gamma * loss(spec, y, pair.value, names)
            whole = whole + torch.autograd.grad(value, point)[0]
        else:
            rest = _error(spec, y, pair, names) - _error(spec, 0 * y, pair, names)
            whole = whole + at_zero + gamma * _outer(spec, rest, pair.erase)
    return whole, write


def contracting(spec: Spec, memory: Tensor, pair: Pair, names: Names) -> Tensor:
    """Return 1 + η γ ℓ″‖φ‖², by which a normalised rate is divided: a number, or one a coordinate.

    ℓ″ is the loss's own second derivative where the step begins: its size in each coordinate, or
    of a loss of the norm the largest eigenvalue.
    """
    y = predict(spec, memory, pair.predict).detach().requires_grad_()
    (slope,) = torch.autograd.grad(loss(spec, y, pair.value, names), y, create_graph=True)
    slope = slope + 0 * y  # of a loss that is linear in ŷ too
    curvature = torch.stack([torch.autograd.grad(s, y, retain_graph=True)[0] for s in slope])
    radial = is_radial(spec, names)
    found = torch.linalg.eigvalsh(curvature)[-1] if radial else curvature.diagonal().abs()[:, None]
    squares = pair.predict.mapped * pair.write  # behind a kernel κ of the key's own column
    diagonal = type(spec.memory).word() == "diagonal"
    square = squares[:, None] if diagonal else squares.sum()
    divisor: Tensor = 1 + names["eta"] * pair.gamma * found * square
    return divisor


def window_weights(spec: Spec, past: tuple[Pair, ...], names: Names) -> list[Tensor]:
    """Return γ_i^(t) of every pair of the window."""
    if type(spec.weights).word() != "window":
        return [pair.gamma for pair in past]
    gates = names["gamma"].reshape(-1)
    assert isinstance(spec.window, int)
    return list(gates.expand(spec.window)[-len(past) :])


def _error(spec: Spec, y: Tensor, pair: Pair, names: Names) -> Tensor:
    point = y.detach().requires_grad_()
    value = loss(spec, point, pair.value, names)
    return torch.autograd.grad(value, point)[0]


def _outer(spec: Spec, error: Tensor, key: Tensor) -> Tensor:
    if type(spec.memory).word() == "diagonal":
        return (error * key)[:, None]
    return torch.outer(error, key)


def whole_step(spec: Spec, memory: Tensor, pair: Pair, names: Names) -> Tensor:
    """Return what a step adds to the dual: an implicit one (minimised), or a flow (integrated).

    An implicit step minimises δ ℓ(Wφ) + R(W) + δ P(W) − ⟨pull, W⟩, where R + δ P is a sum of
    squares and pull the dual of the memory; at the minimum ∇R + δ ∇P = pull + step.
    """

    def value(w: Tensor) -> Tensor:
        return loss(spec, predict(spec, w, pair.predict), pair.value, names)

    if spec.optimizer.method == "implicit":
        delta = names[spec.rate_name] * pair.gamma
        beside = keep(spec, penalty_rate(spec, names), names)
        pull = pull_of(spec, memory, names)

        def objective(w: Tensor) -> Tensor:
            return delta * value(w) + (beside(w) - pull * w).sum()

        found = newton(objective, memory, QUICK).requires_grad_()
        (left,) = torch.autograd.grad(objective(found), found)
        if float(left.abs().max()) <= STILL * (1 + float(found.detach().abs().max())):
            return slope_at(beside, found) - pull
        return _along_key(spec, memory, pair, {**names, spec.rate_name: delta}, beside)
    return _integrated(value, memory, names["eta"] * pair.gamma) - memory


def _along_key(
    spec: Spec, memory: Tensor, pair: Pair, names: Names, beside: Entries
) -> Tensor:  # fmt: skip
    """Solve an implicit step on a loss with kinks, bisecting the sign of the objective's slope.

    The step is along φ, since a part orthogonal to it would only lengthen it; a radial loss moves
    ŷ towards v. ``beside`` is added to the loss: a sum of squares by entry.
    """
    curvature = slope_at(beside, torch.ones_like(memory))  # of ½ρ w², at w = 1
    start = pull_of(spec, memory, names) / curvature
    y, key = predict(spec, start, pair.predict), pair.predict.mapped
    square = key**2 if type(spec.memory).word() == "diagonal" else (key**2).sum()
    way = pair.value - y if is_radial(spec, names) else torch.ones_like(y)
    stiff = curvature.flatten()[0]

    def objective(x: Tensor) -> Tensor:
        value = loss(spec, y + x * way, pair.value, names)
        return names[spec.rate_name] * value + (stiff * (x * way) ** 2 / (2 * square)).sum()

    shape = torch.Size([1]) if is_radial(spec, names) else y.shape
    moved = separable(objective, shape, (-torch.inf, torch.inf)) * way
    return _outer(spec, stiff * moved / square, key)


def _integrated(value: object, start: Tensor, time: Tensor) -> Tensor:
    """Integrate dW/ds = −∇ℓ(W) up to ``time``, by the classical Runge-Kutta method."""
    assert callable(value)

    def pull(w: Tensor) -> Tensor:
        point = w.detach().requires_grad_()
        return -torch.autograd.grad(value(point), point)[0]

    w, s = start, time / PIECES
    for _ in range(PIECES):
        a = pull(w)
        b = pull(w + s / 2 * a)
        c = pull(w + s / 2 * b)
        w = w + s / 6 * (a + 2 * b + 2 * c + pull(w + s * c))
    return w


def past_solution(spec: Spec, past: tuple[Pair, ...], names: Names) -> Tensor:
    """Return the minimiser over the whole past, or full-batch steps towards it from the origin."""
    weights, prior = _discounts(spec, past)
    shape = (len(past[0].value), len(past[0].write))

    def objective(w: Tensor) -> Tensor:
        penalty = (evaluate_text(spec.retention.global_.text, {**names, "w": w}) + 0 * w).sum()
        terms = (
            gamma * loss(spec, predict(spec, w, pair.predict), pair.value, names)
            for pair, gamma in zip(past, weights, strict=True)
        )
        return sum(terms, prior * penalty)

    memory = torch.zeros(shape, dtype=torch.float64)
    if spec.optimizer.method == "exact":
        return newton(objective, memory)
    for _ in range(spec.optimizer.inner_steps):
        point = memory.requires_grad_()
        memory = memory.detach() - names["eta"] * torch.autograd.grad(objective(point), point)[0]
    return memory


def _discounts(spec: Spec, past: tuple[Pair, ...]) -> tuple[list[Tensor], Tensor]:
    """Return γ_i^(t) of every pair times its own weight, and what is left of the ridge."""
    gates, own = [pair.gamma for pair in past], [pair.weight for pair in past]
    if type(spec.weights).word() != "geometric":
        return [gate * w for gate, w in zip(gates, own, strict=True)], tensor(1)
    later = [math.prod(gates[i + 1 :], start=w) for i, w in enumerate(own)]
    forgotten = getattr(spec.weights, "ridge", "forgotten") == "forgotten"
    return later, math.prod(gates, start=tensor(1)) if forgotten else tensor(1)
