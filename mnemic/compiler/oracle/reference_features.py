"""Feature maps by their definitions, in float64, for the oracle: one small function per map.

The projection of ``random``: with g = torch.Generator().manual_seed(seed), in float64 on the CPU,
blocks of d rows until there are m: Q, R = qr(randn(d, d, g)), the block's directions are the rows
of Qᵀ; after all blocks, one row norm for each feature is ‖randn(m, d, g)‖ along d. The same ω
serves every head.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any, Final

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.statement import tensor
from mnemic.compiler.problem import Problem
from mnemic.dsl import features as axis

FIRST_POSITION: Final = 0
"""The position of a document's first token, as ``t`` in expressions."""


def feature_map(
    problem: Problem, x: Tensor, position: Tensor, weights: Sequence[Tensor] = ()
) -> Tensor:
    """Return φ(x) for x of shape [..., d]; ``position`` and the a_i of a polynomial, ``weights``,
    broadcast over the leading axes."""
    entry = problem.spec.features
    if problem.features is not None:
        return evaluate(problem.features, {sym.x: x}) + torch.zeros_like(x)
    match entry:
        case axis.Softmax():
            return torch.softmax(x, -1)
        case axis.Polynomial(degree=degree, mode="power"):
            return power(x, degree)
        case axis.Polynomial(degree=degree):
            return graded(x, degree, weights)
        case axis.Taylor(order=order):
            return graded(x, order, [tensor(1 / math.factorial(i)) for i in range(order + 1)])
        case axis.Cosine(length=length):
            return cosine(x, position, length)
        case axis.Dpfp(nu=nu):
            return dpfp(x, nu)
        case axis.Random(features=count, seed=seed):
            return positive_random(x, projection(x.shape[-1], count, seed))
    raise ValueError(f"no finite map for the features '{type(entry).word()}'")


def weights_of(problem: Problem, values: Mapping[Any, Tensor]) -> list[Tensor]:
    """Return the a_i of polynomial features, of coefficients by their symbols."""
    return [evaluate(problem.value(n), values) for n, _, _ in problem.spec.features.coefficients()]


def graded(x: Tensor, degree: int, weights: Sequence[Tensor]) -> Tensor:
    """Return monomials up to ``degree`` with the constant, so that φ(x)·φ(y) = Σ_i a_i (x·y)^i.

    (x·y)^i = Σ over multisets of i! / Π m_j! · Π (x_j y_j)^m_j.
    """
    found = []
    for i, a in zip(range(degree + 1), weights, strict=True):
        for places in combinations_with_replacement(range(x.shape[-1]), i):
            repeats = math.prod(math.factorial(places.count(p)) for p in set(places))
            term = torch.ones_like(x[..., 0])
            for place in places:
                term = term * x[..., place]
            found.append(torch.sqrt(a * math.factorial(i) / repeats) * term)
    return torch.stack(found, -1)


def power(x: Tensor, degree: int) -> Tensor:
    """Return the ``degree``-fold self-tensor, flattened."""
    found = x
    for _ in range(degree - 1):
        found = (found[..., :, None] * x[..., None, :]).flatten(-2)
    return found


def cosine(x: Tensor, position: Tensor, length: int) -> Tensor:
    """Return relu(x) cos(πt/2M) and relu(x) sin(πt/2M)."""
    angle = (math.pi * (position.double() + FIRST_POSITION) / (2 * length))[..., None]
    positive = torch.relu(x)
    return torch.cat([positive * torch.cos(angle), positive * torch.sin(angle)], -1)


def dpfp(x: Tensor, nu: int) -> Tensor:
    """Return r ∘ roll(r, j) for j = 1..ν, r = relu([x, −x])."""
    both = torch.relu(torch.cat([x, -x], -1))
    return torch.cat([both * both.roll(j, -1) for j in range(1, nu + 1)], -1)


def positive_random(x: Tensor, omega: Tensor) -> Tensor:
    """Return exp(ω·x − ‖x‖²/2) / √m."""
    square = (x**2).sum(-1, keepdim=True)
    return torch.exp(x @ omega.T - square / 2) / math.sqrt(omega.shape[0])


def projection(size: int, count: int, seed: int) -> Tensor:
    """Return ω [m, d] in orthogonal blocks, with the row norms of independent Gaussian rows."""
    generator = torch.Generator().manual_seed(seed)
    blocks = []
    for _ in range(-(-count // size)):
        square = torch.randn(size, size, generator=generator, dtype=torch.float64)
        blocks.append(torch.linalg.qr(square)[0].T)
    rows = torch.cat(blocks)[:count]
    norms = torch.randn(count, size, generator=generator, dtype=torch.float64).norm(dim=1)
    omega: Tensor = rows * norms[:, None]
    return omega
